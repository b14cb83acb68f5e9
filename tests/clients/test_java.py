"""The Java client, which defines what Kafka's protocol means, with its defaults.

The checks run in one JVM and each is reported here under its own name (`javas`).
"""

import pytest

from tests.clients.javas import Answers, run_checks
from tests.clients.tools import CODECS
from tests.conftest import Broker

pytestmark = [pytest.mark.clients, pytest.mark.java]
CHECKS = [
    "topics_are_created_listed_described_and_deleted",
    "partitions_are_added_but_never_taken_away",
    "configs_are_described_altered_and_validated",
    "the_cluster_and_its_log_dirs_are_described",
    "client_quotas_are_set_described_and_removed",
    *(f"records_come_back_as_sent_{codec}" for codec in CODECS),
    "headers_and_nulls_survive",
    "a_too_large_record_is_refused",
    "offsets_are_found_by_time_and_at_both_ends",
    "deleted_records_are_gone",
]


@pytest.fixture(scope="module")
def answers(_shared_broker: Broker) -> Answers:
    return run_checks("Checks", _shared_broker.bootstrap)


@pytest.mark.parametrize("check", CHECKS)
def test_java_client_check_passes(check: str, answers: Answers, broker: Broker) -> None:
    answers.require(check)
