"""confluent-kafka consumers in groups: both protocols, every way to come and to go."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.clients.groups import Member, poll_until, share, spawn
from tests.conftest import QUICK_GROUPS, Broker, FreshBroker
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.clients

PROTOCOLS = {
    "eager": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
Joins = Callable[..., Member]


@pytest.fixture(params=list(PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def join(broker: Broker, group: str, topic: str) -> Iterator[Joins]:
    """Starts members of the test's group; they leave when it ends."""
    members: list[Member] = []

    def start(protocol: str, **settings: Any) -> Member:
        members.append(Member(broker, group, topic, **PROTOCOLS[protocol], **settings))
        return members[-1]

    yield start
    for member in members:
        member.close()


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def fill(broker: Broker, topic: str, partitions: int, each: int) -> set[bytes]:
    """Puts `each` distinct records into every partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    values = {b"%d/%d" % (p, n) for p in range(partitions) for n in range(each)}
    for value in sorted(values):
        producer.produce(topic, value, partition=int(value.split(b"/")[0]))
    assert producer.flush(20) == 0
    return values


def test_single_member_reads_everything(
    broker: Broker, admin: AdminClient, topic: str, protocol: str, join: Joins
) -> None:
    create(admin, topic, 4)
    values = fill(broker, topic, 4, 50)
    member = join(protocol)
    poll_until([member], lambda: len(member.messages) >= 200, "everything is read")
    assert set(member.values()) == values
    assert member.partitions == {0, 1, 2, 3}


def test_new_member_gets_its_share_and_returns_it_when_it_leaves(
    broker: Broker, admin: AdminClient, topic: str, protocol: str, join: Joins
) -> None:
    create(admin, topic, 6)
    first = join(protocol)
    poll_until([first], lambda: len(first.partitions) == 6, "the first has all")
    second = join(protocol)
    both = [first, second]
    poll_until(both, lambda: share(both, 6), "they share")
    assert len(first.partitions) == len(second.partitions) == 3
    values = fill(broker, topic, 6, 20)
    poll_until(
        both, lambda: len(first.messages) + len(second.messages) >= 120, "all is read between them"
    )
    assert set(first.values() + second.values()) == values
    assert max((first.values() + second.values()).values()) == 1
    second.close()
    poll_until([first], lambda: len(first.partitions) == 6, "the first has all again")


def test_crashed_member_loses_its_partitions_after_its_session(
    broker: Broker, admin: AdminClient, topic: str, group: str, protocol: str, join: Joins
) -> None:
    create(admin, topic, 4)
    crashing = spawn(broker, group, topic, **PROTOCOLS[protocol])
    survivor = join(protocol)
    try:
        poll_until([survivor], lambda: len(survivor.partitions) == 2, "they share")
    finally:
        crashing.kill()
        crashing.wait()
    seconds = poll_until([survivor], lambda: len(survivor.partitions) == 4, "the survivor has all")
    assert seconds < 15
    assert not survivor.lost


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"], indirect=True)
def test_member_keeps_partitions_that_need_not_move(
    admin: AdminClient, topic: str, protocol: str, join: Joins
) -> None:
    create(admin, topic, 6)
    first = join(protocol)
    poll_until([first], lambda: len(first.partitions) == 6, "the first has all")
    second = join(protocol)
    poll_until([first, second], lambda: share([first, second], 6), "they share")
    given_away = [index for rows in first.revoked for index in rows]
    assert len(given_away) == 3
    assert set(given_away) == second.partitions


def test_static_member_gets_its_partitions_back(
    admin: AdminClient, topic: str, protocol: str, join: Joins
) -> None:
    create(admin, topic, 4)
    patience = {} if protocol == "consumer" else {"session_timeout_ms": 10_000}
    one = join(protocol, group_instance_id="one", **patience)
    two = join(protocol, group_instance_id="two", **patience)
    poll_until([one, two], lambda: share([one, two], 4), "they share")
    held = two.partitions
    revoked = len(one.revoked)
    two.close()
    back = join(protocol, group_instance_id="two", **patience)
    poll_until([one, back], lambda: back.partitions == held, "it has the same again")
    assert len(one.revoked) == revoked, "the other one was disturbed"


def test_second_member_with_the_same_instance_id_fences_the_first(
    admin: AdminClient, topic: str, join: Joins
) -> None:
    create(admin, topic, 2)
    old = join("eager", group_instance_id="only")
    poll_until([old], lambda: len(old.partitions) == 2, "the old one has all")
    new = join("eager", group_instance_id="only")
    poll_until([new], lambda: len(new.partitions) == 2, "the new one has all")
    with pytest.raises((KafkaException, AssertionError), match=r"FENCED|fenced"):
        poll_until([old], lambda: False, "the old one is fenced", timeout_s=10)


def test_group_continues_at_its_committed_offset(
    broker: Broker, admin: AdminClient, topic: str, protocol: str, join: Joins
) -> None:
    create(admin, topic, 1)
    fill(broker, topic, 1, 10)
    first = join(protocol)
    poll_until([first], lambda: len(first.messages) >= 10, "all is read")
    (row,) = first.consumer.commit(
        offsets=[TopicPartition(topic, 0, 4, metadata="halfway")], asynchronous=False
    )
    assert (row.error, row.offset) == (None, 4)
    first.close()
    second = join(protocol)
    poll_until([second], lambda: len(second.messages) >= 6, "the rest is read")
    assert [m.offset() for m in second.messages] == [4, 5, 6, 7, 8, 9]
    (row,) = second.consumer.committed([TopicPartition(topic, 0)], timeout=10)
    assert (row.offset, row.metadata) == (4, "halfway")


def test_automatic_commits_are_stored(
    broker: Broker, admin: AdminClient, topic: str, protocol: str, join: Joins
) -> None:
    create(admin, topic, 2)
    fill(broker, topic, 2, 10)
    member = join(protocol)
    poll_until([member], lambda: len(member.messages) >= 20, "all is read")
    member.consumer.commit(asynchronous=True)
    rows = [TopicPartition(topic, 0), TopicPartition(topic, 1)]

    def kept() -> bool:
        return [r.offset for r in member.consumer.committed(rows, timeout=10)] == [10, 10]

    eventually(kept, "both positions are kept")


def test_pause_and_seek_are_respected(
    broker: Broker, admin: AdminClient, topic: str, protocol: str, join: Joins
) -> None:
    create(admin, topic, 2)
    fill(broker, topic, 2, 10)
    member = join(protocol)
    poll_until([member], lambda: len(member.messages) >= 20, "all is read")
    member.consumer.pause([TopicPartition(topic, 0)])
    for index in (0, 1):
        member.consumer.seek(TopicPartition(topic, index, 5))
    member.messages.clear()
    poll_until([member], lambda: len(member.messages) >= 5, "one partition is read again")
    for _ in range(5):
        member.poll()
    assert {m.partition() for m in member.messages} == {1}
    member.consumer.resume([TopicPartition(topic, 0)])
    poll_until([member], lambda: len(member.messages) >= 10, "the other one too")
    assert [m.offset() for m in member.messages if m.partition() == 0] == [5, 6, 7, 8, 9]


def test_new_partitions_are_assigned(
    broker: Broker, admin: AdminClient, topic: str, join: Joins
) -> None:
    create(admin, topic, 2)
    member = join("consumer")
    poll_until([member], lambda: len(member.partitions) == 2, "it has both")
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(20)
    poll_until([member], lambda: len(member.partitions) == 4, "it has the new ones")


def test_pattern_matches_topics_created_later(
    broker: Broker, admin: AdminClient, topic: str, group: str
) -> None:
    create(admin, f"{topic}.a", 1)
    member = Member(broker, group, f"^{topic}\\..*", group_protocol="consumer")
    try:
        poll_until([member], lambda: len(member.consumer.assignment()) == 1, "it has the first")
        create(admin, f"{topic}.b", 1)
        poll_until([member], lambda: len(member.consumer.assignment()) == 2, "it has both")
    finally:
        member.close()


def test_commit_of_a_non_member_is_refused(
    broker: Broker, admin: AdminClient, topic: str, group: str, join: Joins
) -> None:
    create(admin, topic, 1)
    member = join("eager")
    poll_until([member], lambda: member.partitions, "it has a partition")
    outsider = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    with pytest.raises(KafkaException) as refused:
        outsider.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    outsider.close()
    (row,) = member.consumer.committed([TopicPartition(topic, 0)], timeout=10)
    assert row.offset < 0


def test_commit_to_an_unknown_partition_is_refused(
    broker: Broker, admin: AdminClient, topic: str, group: str
) -> None:
    create(admin, topic, 1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[TopicPartition(topic, 7, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer.close()


def test_groups_are_listed_described_altered_and_deleted(
    broker: Broker, admin: AdminClient, topic: str, group: str, protocol: str, join: Joins
) -> None:
    create(admin, topic, 2)
    member = join(protocol, client_id="a-client")
    poll_until([member], lambda: len(member.partitions) == 2, "it has both")
    member.consumer.commit(
        offsets=[TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)], asynchronous=False
    )
    listed = {row.group_id: row for row in admin.list_consumer_groups().result(20).valid}
    assert listed[group].state == ConsumerGroupState.STABLE
    described = admin.describe_consumer_groups([group])[group].result(20)
    assert described.state == ConsumerGroupState.STABLE
    (row,) = described.members
    assert row.client_id == "a-client"
    assert sorted(p.partition for p in row.assignment.topic_partitions) == [0, 1]
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(20)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.close()
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 42)])
    admin.alter_consumer_group_offsets([wanted])[group].result(20)
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(20).topic_partitions
    assert {(p.partition, p.offset) for p in found} == {(0, 42), (1, 0)}
    admin.delete_consumer_groups([group])[group].result(20)
    assert group not in {row.group_id for row in admin.list_consumer_groups().result(20).valid}


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_group_survives_a_broker_restart(
    fresh_broker: FreshBroker, topic: str, protocol: str, how: str
) -> None:
    """Members stay, positions stay, and reading goes on where it was."""
    sets = {**QUICK_GROUPS, "group.consumer.session.timeout.ms": 20_000}
    broker = fresh_broker(sets=sets, kafka_port=free_port())
    create(AdminClient({"bootstrap.servers": broker.bootstrap}), topic, 2)
    fill(broker, topic, 2, 10)
    patience = {} if protocol == "consumer" else {"session_timeout_ms": 20_000}
    member = Member(broker, f"group-of-{topic}", topic, **PROTOCOLS[protocol], **patience)
    poll_until([member], lambda: len(member.messages) == 20, "all is read")
    member.consumer.commit(asynchronous=False)
    if how == "killed":
        broker.kill()
    else:
        broker.stop()
    again = fresh_broker(broker.data_dir, sets=sets, kafka_port=broker.kafka_port)
    fill(again, topic, 2, 20)
    poll_until([member], lambda: len(member.messages) >= 60, "what came later is read too")
    assert len(member.messages) == 60, "and nothing twice"
    rows = member.consumer.committed(member.consumer.assignment(), timeout=20)
    assert [row.offset for row in rows] == [10, 10]
    assert not member.lost
    member.close()
