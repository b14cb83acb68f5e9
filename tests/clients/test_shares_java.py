"""Share groups of the Java client, and Kafka's own command line for them (KIP-932).

The checks run in one JVM, and so do the tools (`javas`).
"""

import os
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import QUICK, PenstockProcess
from tests.clients.javas import Answers, Jvm, kafka_tools, run_checks
from tests.clients.shares import ShareMember, configure_group

pytestmark = [pytest.mark.clients, pytest.mark.java]
CHECKS = [
    "members_share_one_partition",
    "records_are_accepted_by_the_next_poll",
    "records_are_accepted_released_and_rejected",
    "a_lease_runs_out_and_a_late_answer_is_refused",
    "a_lease_is_renewed",
    "a_record_is_given_up_after_its_last_try",
    "what_a_member_held_is_free_when_it_closes",
    "compressed_batches_are_read",
    "aborted_records_are_not_delivered_where_the_group_says_so",
    "a_group_begins_where_it_is_told",
    "share_groups_are_administered",
    "positions_are_described_altered_and_deleted",
]
COMMAND = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
QUICK_SHARES = {**QUICK, "group.share.min.record.lock.duration.ms": 1_000}


@pytest.fixture(scope="module")
def share_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    """A broker that allows short leases."""
    process = PenstockProcess(tmp_path_factory.mktemp("shares") / "data", QUICK_SHARES)
    yield process
    assert process.stop() == 0, process.log()


@pytest.fixture(scope="module")
def answers(share_broker: PenstockProcess) -> Answers:
    return run_checks("Shares", share_broker.bootstrap)


@pytest.mark.parametrize("check", CHECKS)
def test_java_client_check_passes(check: str, answers: Answers) -> None:
    answers.require(check)


@pytest.fixture
def tools() -> Iterator[Jvm]:
    started = kafka_tools()
    yield started
    started.close()


def test_kafka_share_groups_tool_works(share_broker: PenstockProcess, tools: Jvm) -> None:
    """Lists, describes with offsets and members, resets and deletes."""

    def share_groups(*arguments: str) -> str:
        return tools.run(COMMAND, "--bootstrap-server", share_broker.bootstrap, *arguments)

    topic, group = f"tool-{os.getpid()}", f"tool-group-{os.getpid()}"
    admin = AdminClient({"bootstrap.servers": share_broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    configure_group(share_broker.bootstrap, group, {"share.auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": share_broker.bootstrap})
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    producer.flush(20)
    with ShareMember(share_broker.bootstrap, group, topic) as member:
        member.read(20)
        member.commit()
        assert re.search(rf"{group}\s+Share", share_groups("--list")) or (
            group in share_groups("--list").split()
        )
        described = share_groups("--describe", "--group", group)
        for index in (0, 1):
            line = rf"{group}\s+{re.escape(topic)}\s+{index}\s+10\s+0"
            assert re.search(line, described), described
        members = share_groups("--describe", "--members", "--group", group)
        assert re.search(rf"{group}\s+\S+\s+\S+\s+rdkafka\s+.*{re.escape(topic)}", members), members
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    share_groups(*reset)
    described = share_groups("--describe", "--group", group)
    assert len(re.findall(rf"{group}\s+{re.escape(topic)}\s+[01]\s+0\s+10", described)) == 2
    share_groups("--delete-offsets", "--group", group, "--topic", topic)
    share_groups("--delete", "--group", group)
    assert group not in share_groups("--list").split()
