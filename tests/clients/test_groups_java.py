"""Groups and transactions of the Java client, and Kafka's own command line for groups.

The checks run in one JVM, and so do the tools (`javas`).
"""

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.groups import Member, poll_until
from tests.clients.javas import Answers, Jvm, kafka_tools, run_checks
from tests.conftest import Broker

pytestmark = [pytest.mark.clients, pytest.mark.java]
COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
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
def answers(_shared_broker: Broker) -> Answers:
    return run_checks("Groups", _shared_broker.bootstrap)


@pytest.mark.parametrize("check", CHECKS)
def test_java_client_check_passes(check: str, answers: Answers, broker: Broker) -> None:
    answers.require(check)


@pytest.fixture
def tools() -> Iterator[Jvm]:
    started = kafka_tools()
    yield started
    started.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafka_consumer_groups_tool_works(
    broker: Broker, topic: str, protocol: str, tools: Jvm
) -> None:
    """Lists, describes with lag, resets offsets and deletes."""

    def consumer_groups(*arguments: str) -> str:
        return tools.run(COMMAND, "--bootstrap-server", broker.bootstrap, *arguments)

    group = f"group-of-{topic}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    producer.flush(20)
    member = Member(broker, group, topic, group_protocol=protocol, client_id="a-client")
    poll_until([member], lambda: len(member.messages) == 20, "all is read")
    rows = list(member.consumer.position(member.consumer.assignment()))
    for row in rows:
        row.offset -= 3
    member.consumer.commit(offsets=rows, asynchronous=False)
    assert group in consumer_groups("--list").split()
    described = consumer_groups("--describe", "--group", group)
    for index in (0, 1):
        line = rf"{group}\s+{re.escape(topic)}\s+{index}\s+7\s+10\s+3\s+\S+\s+\S+\s+a-client"
        assert re.search(line, described), described
    member.close()
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    consumer_groups(*reset)
    described = consumer_groups("--describe", "--group", group)
    assert len(re.findall(rf"{group}\s+{re.escape(topic)}\s+[01]\s+0\s+10\s+10", described)) == 2
    assert "successful" in consumer_groups("--delete", "--group", group)
    assert group not in consumer_groups("--list").split()
