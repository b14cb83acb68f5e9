"""Share groups of the Java client, and Kafka's own command line for them (KIP-932).

The checks run in one JVM, as those of `test_java` do. The tools come from the jars that
`bench.peers.kafka` keeps for benchmarks.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers import kafka
from tests.brokers import PenstockProcess
from tests.clients.shares import ShareMember, configure_group
from tests.clients.test_java import CLASSES, LIBS, build
from tests.clients.tools import require_tool

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
QUICK_SHARES = {"group.share.min.record.lock.duration.ms": 1_000}


@pytest.fixture(scope="module")
def share_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    """A broker that allows short leases."""
    process = PenstockProcess(tmp_path_factory.mktemp("shares") / "data", QUICK_SHARES)
    yield process
    assert process.stop() == 0, process.log()


@pytest.fixture(scope="module")
def answers(share_broker: PenstockProcess) -> dict[str, Any]:
    """One JVM runs every check; its answers by name."""
    build()
    command = ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", f"{CLASSES}:{LIBS}/*", "penstock.clients.Shares"]
    command += [share_broker.bootstrap, f"{os.getpid()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows, f"the Java client said nothing:\n{done.stdout}{done.stderr}"
    return {row["check"]: row for row in rows} | {"stderr": done.stderr}


@pytest.mark.parametrize("check", CHECKS)
def test_java(check: str, answers: dict[str, Any]) -> None:
    assert check in answers, f"the Java client never came to it:\n{answers['stderr'][-2000:]}"
    assert answers[check]["ok"], answers[check]["error"] + "\n" + answers["stderr"][-2000:]


def share_groups(broker: PenstockProcess, *arguments: str) -> str:
    """What `kafka-share-groups` prints."""
    require_tool("java", "apt-get install -y default-jdk-headless, or ensure_tools.sh")
    libs = kafka.fetch(print)
    command = ["java", "-Xmx256m", "-cp", f"{libs}/*"]
    command += ["org.apache.kafka.tools.consumer.group.ShareGroupCommand"]
    command += ["--bootstrap-server", broker.bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafka_share_groups(share_broker: PenstockProcess) -> None:
    """Lists, describes with offsets and members, resets and deletes."""
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
        assert re.search(rf"{group}\s+Share", share_groups(share_broker, "--list")) or (
            group in share_groups(share_broker, "--list").split()
        )
        described = share_groups(share_broker, "--describe", "--group", group)
        for index in (0, 1):
            line = rf"{group}\s+{re.escape(topic)}\s+{index}\s+10\s+0"
            assert re.search(line, described), described
        members = share_groups(share_broker, "--describe", "--members", "--group", group)
        assert re.search(rf"{group}\s+\S+\s+\S+\s+rdkafka\s+.*{re.escape(topic)}", members), members
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    share_groups(share_broker, *reset)
    described = share_groups(share_broker, "--describe", "--group", group)
    assert len(re.findall(rf"{group}\s+{re.escape(topic)}\s+[01]\s+0\s+10", described)) == 2
    share_groups(share_broker, "--delete-offsets", "--group", group, "--topic", topic)
    share_groups(share_broker, "--delete", "--group", group)
    assert group not in share_groups(share_broker, "--list").split()
