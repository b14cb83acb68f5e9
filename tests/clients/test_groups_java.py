"""Groups and transactions of the Java client, and Kafka's own command line for groups.

The checks run in one JVM, as those of `test_java` do. The tools come from the jars that
`bench.peers.kafka` keeps for benchmarks.
"""

import json
import os
import re
import subprocess
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers import kafka
from tests.clients.groups import Member, poll_until
from tests.clients.test_java import CLASSES, LIBS, build
from tests.clients.tools import require_tool
from tests.conftest import Broker

pytestmark = [pytest.mark.clients, pytest.mark.java]
PROTOCOLS = ("classic", "consumer")
CHECKS = [
    *(
        f"{check}_{protocol}"
        for protocol in PROTOCOLS
        for check in (
            "members_share_and_take_over",
            "a_group_goes_on_where_it_committed",
            "seek_pause_and_resume",
            "a_static_member_comes_back",
            "groups_are_administered",
            "consume_transform_produce",
        )
    ),
    "a_pattern_is_matched_by_the_broker",
    "a_group_moves_to_the_new_protocol_and_back",
    "a_group_has_configs_of_its_own",
    "transactions_commit_and_abort",
    "a_second_producer_fences_the_first",
    "transactions_are_listed_and_described",
]


@pytest.fixture(scope="module")
def answers(_shared_broker: Broker) -> dict[str, Any]:
    """One JVM runs every check; its answers by name."""
    build()
    command = ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", f"{CLASSES}:{LIBS}/*", "penstock.clients.Groups"]
    command += [_shared_broker.bootstrap, f"{os.getpid()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows, f"the Java client said nothing:\n{done.stdout}{done.stderr}"
    return {row["check"]: row for row in rows} | {"stderr": done.stderr}


@pytest.mark.parametrize("check", CHECKS)
def test_java(check: str, answers: dict[str, Any], broker: Broker) -> None:
    assert check in answers, f"the Java client never came to it:\n{answers['stderr'][-2000:]}"
    assert answers[check]["ok"], answers[check]["error"] + "\n" + answers["stderr"][-2000:]


def consumer_groups(broker: Broker, *arguments: str) -> str:
    """What `kafka-consumer-groups` prints."""
    require_tool("java", "apt-get install -y default-jdk-headless, or ensure_tools.sh")
    libs = kafka.fetch(print)
    command = ["java", "-Xmx256m", "-cp", f"{libs}/*"]
    command += ["org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"]
    command += ["--bootstrap-server", broker.bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafka_consumer_groups(broker: Broker, topic: str, protocol: str) -> None:
    """Lists, describes with lag, resets offsets and deletes."""
    group = f"group-of-{topic}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    producer.flush(20)
    member = Member(broker, group, topic, group_protocol=protocol, client_id="someone")
    poll_until([member], lambda: len(member.messages) == 20, "all is read")
    rows = list(member.consumer.position(member.consumer.assignment()))
    for row in rows:
        row.offset -= 3
    member.consumer.commit(offsets=rows, asynchronous=False)
    assert group in consumer_groups(broker, "--list").split()
    described = consumer_groups(broker, "--describe", "--group", group)
    for index in (0, 1):
        line = rf"{group}\s+{re.escape(topic)}\s+{index}\s+7\s+10\s+3\s+\S+\s+\S+\s+someone"
        assert re.search(line, described), described
    member.close()
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    consumer_groups(broker, *reset)
    described = consumer_groups(broker, "--describe", "--group", group)
    assert len(re.findall(rf"{group}\s+{re.escape(topic)}\s+[01]\s+0\s+10\s+10", described)) == 2
    assert "successful" in consumer_groups(broker, "--delete", "--group", group)
    assert group not in consumer_groups(broker, "--list").split()
