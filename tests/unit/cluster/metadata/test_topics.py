"""Creating, growing and deleting topics: every rule, in Kafka's codes."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NO_TOPIC_ID, TopicId, show_topic_id
from penstock.base.ports import Change, Delete, Expect, Put, UnknownResult
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata import store_keys, topics
from penstock.cluster.metadata.image import EMPTY, Image, load
from penstock.cluster.metadata.store_keys import (
    BrokerRecord,
    DeletedRecord,
    PartitionRecord,
    TopicRecord,
)
from penstock.cluster.metadata.topics import NewTopic, TopicPlan
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with

RANDOM = SimRandom(1)
BROKERS = {1: BrokerRecord(1, "h", 1), 2: BrokerRecord(2, "h", 2), 3: BrokerRecord(3, "h", 3)}


def image(names: tuple[str, ...] = (), brokers: dict[int, BrokerRecord] | None = None) -> Image:
    born = PartitionRecord(replicas=(1,), leader=1, isr=(1,))
    changes = [
        Change(
            store_keys.topic_key(name),
            store_keys.encode(TopicRecord(show_topic_id(topic_id), (born,))),
            1,
        )
        for number, name in enumerate(names)
        for topic_id in [TopicId(bytes([number + 1]) * 16)]
    ]
    for node, record in (brokers or BROKERS).items():
        changes.append(Change(store_keys.broker_key(node), store_keys.encode(record), 1))
    return EMPTY.apply(changes)


def plan(new: NewTopic, seen: Image | None = None, **configs: str) -> TopicPlan:
    broker = BrokerConfigs({name.replace("_", "."): value for name, value in configs.items()})
    return topics.plan_topic(new, seen or image(), broker, RANDOM)


def code_of(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        work()
    return refused.value.code


# Names.


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__mine"])
def test_legal_topic_name_is_accepted(name: str) -> None:
    topics.check_name(name)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "longer than the max allowed length 249"),
        ("a b", "contains one or more characters other than ASCII alphanumerics"),
        ("a/b", "contains one or more characters"),
        ("ä", "contains one or more characters"),
        ("a\n", "contains one or more characters"),
    ],
)
def test_illegal_topic_name_is_refused(name: str, wrong: str) -> None:
    with pytest.raises(Refused, match="Topic name is invalid") as refused:
        topics.check_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert wrong in str(refused.value)


def test_name_that_collides_in_metrics_is_refused() -> None:
    with pytest.raises(Refused, match=r"collides with existing topic: a_b") as refused:
        plan(NewTopic("a.b"), image(("a_b",)))
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    plan(NewTopic("ab"), image(("a_b", "a.c")))


def test_existing_name_is_refused_as_such() -> None:
    assert code_of(lambda: plan(NewTopic("a.b"), image(("a.b",)))) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_cluster_metadata_topic_cannot_be_created() -> None:
    assert code_of(lambda: plan(NewTopic("__cluster_metadata"))) is ErrorCode.INVALID_REQUEST


# Counts.


def test_missing_counts_default_to_broker_configs() -> None:
    made = plan(NewTopic("t"), num_partitions="4", default_replication_factor="2")
    assert len(made.record.partitions) == 4
    assert made.replication_factor == 2


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 2001, 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 2**31 - 1, 1), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_invalid_counts_are_refused(new: NewTopic, code: ErrorCode) -> None:
    assert code_of(lambda: plan(new)) is code


# Assignments by hand.


def test_manual_assignment_is_kept() -> None:
    made = plan(NewTopic("t", assignments=[(1, [3, 1]), (0, [2, 3])]))
    assert [record.replicas for record in made.record.partitions] == [(2, 3), (3, 1)]
    assert [record.leader for record in made.record.partitions] == [2, 3]


def test_draining_broker_is_assigned_but_does_not_lead() -> None:
    brokers = {**BROKERS, 1: BrokerRecord(1, "h", 1, is_draining=True)}
    made = plan(NewTopic("t", assignments=[(0, [1, 2])]), image(brokers=brokers))
    assert made.record.partitions[0].leader == 2
    assert made.record.partitions[0].isr == (2,)
    only = NewTopic("t", assignments=[(0, [1])])
    refused = code_of(lambda: plan(only, image(brokers=brokers)))
    assert refused is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("t", 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(-1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            NewTopic("t", assignments=[(i, [1]) for i in range(2001)]),
            ErrorCode.POLICY_VIOLATION,
        ),
    ],
)
def test_invalid_assignment_is_refused(new: NewTopic, code: ErrorCode) -> None:
    assert code_of(lambda: plan(new)) is code


# Configs and ids.


def test_configs_are_validated_and_stored() -> None:
    made = plan(NewTopic("t", configs={"retention.ms": "5", "cleanup.policy": "compact"}))
    assert made.record.configs == {"cleanup.policy": "compact", "retention.ms": "5"}


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"retention.mss": "5"}, "did you mean 'retention.ms'"),
        ({"retention.ms": "soon"}, "Not a number of type LONG"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
    ],
)
def test_invalid_configs_are_refused(configs: dict[str, str | None], words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        plan(NewTopic("t", configs=configs))
    assert refused.value.code is ErrorCode.INVALID_CONFIG


class GivenBytes:
    """A source of bytes that are given."""

    def __init__(self, *given: bytes) -> None:
        self.given = list(given)

    def random_bytes(self, count: int) -> bytes:
        return self.given.pop(0)

    def uniform(self, low: float, high: float) -> float:
        return low

    def jitter(self) -> float:
        return 0.0


def test_topic_id_is_not_reserved_and_not_like_an_option() -> None:
    dashed = b"\xf8" + bytes(range(15))
    assert show_topic_id(TopicId(dashed)).startswith("-")
    good = b"g" * 16
    assert topics.new_topic_id(GivenBytes(NO_TOPIC_ID, bytes(15) + b"\1", dashed, good)) == good


# Commands.


def on_store(
    work: Callable[[SimStore], Awaitable[None]], seeds: int = 1, unknown: float = 0
) -> None:
    async def main(loop: SimLoop) -> None:
        etcd = SimEtcd(loop.seed)
        etcd.unknown_ratio = unknown
        await work(SimStore(etcd))

    for seed in range(seeds):
        run(main, seed)


async def read(store: SimStore, name: str) -> TopicRecord | None:
    entry = await store.get(store_keys.topic_key(name))
    return store_keys.decode(TopicRecord, entry.value) if entry else None


@run_with(on_store)
async def test_created_topic_is_in_the_store_at_its_revision(store: SimStore) -> None:
    made = plan(NewTopic("t", 2))
    revision = await topics.create_topic(store, made)
    seen = load(*await store.range("/"))
    assert seen.revision >= revision
    assert seen.topics["t"].id == made.id
    assert len(seen.topics["t"].partitions) == 2


@run_with(on_store)
async def test_second_creation_of_a_name_is_refused(store: SimStore) -> None:
    await topics.create_topic(store, plan(NewTopic("t")))
    with pytest.raises(Refused) as refused:
        await topics.create_topic(store, plan(NewTopic("t")))
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


@run_with(on_store, seeds=40, unknown=0.5)
async def test_unknown_result_does_not_end_as_topic_already_exists(store: SimStore) -> None:
    made = plan(NewTopic("t"))
    await topics.create_topic(store, made)
    record = await read(store, "t")
    assert record == made.record


class Meddled(SimStore):
    """Applies a change, lets another client change the same topic, and then loses the answer."""

    async def commit(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> int | None:
        await super().commit(expects, changes)
        [put] = changes
        assert isinstance(put, Put)
        record = store_keys.decode(TopicRecord, put.value)
        altered = TopicRecord(record.id, record.partitions, {"retention.ms": "5"})
        await super().commit([], [Put(put.key, store_keys.encode(altered))])
        raise UnknownResult


@run_with(run)
async def test_created_topic_is_recognized_after_a_concurrent_change(loop: SimLoop) -> None:
    store = Meddled(SimEtcd(loop.seed))
    assert await topics.create_topic(store, plan(NewTopic("t"))) == 2


@run_with(on_store, seeds=40, unknown=0.4)
async def test_topic_deletion_removes_the_name_and_leaves_a_deletion_record(
    store: SimStore,
) -> None:
    made = plan(NewTopic("t", 3))
    await topics.create_topic(store, made)
    await topics.delete_topic(store, "t")
    assert await read(store, "t") is None
    note = await store.get(store_keys.deleted_key(made.id))
    assert note is not None
    assert store_keys.decode(DeletedRecord, note.value) == DeletedRecord("t", 3, (1, 2, 3))


@run_with(on_store)
async def test_deletion_of_an_unknown_topic_is_refused(store: SimStore) -> None:
    made = plan(NewTopic("t"))
    await topics.create_topic(store, made)
    for name, topic_id, code in [
        ("u", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", made.id, ErrorCode.UNKNOWN_TOPIC_ID),
        ("t", TopicId(b"x" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
    ]:
        with pytest.raises(Refused) as refused:
            await topics.delete_topic(store, name, topic_id)
        assert refused.value.code is code
    await topics.delete_topic(store, "t", made.id)


@run_with(on_store, seeds=30, unknown=0.4)
async def test_added_partitions_keep_the_existing_ones(store: SimStore) -> None:
    made = plan(NewTopic("t", 2, 2, configs={"retention.ms": "5"}))
    await topics.create_topic(store, made)
    await topics.create_partitions(store, image(), RANDOM, "t", 5, None)
    record = await read(store, "t")
    assert record is not None
    assert record.id == made.record.id
    assert record.configs == {"retention.ms": "5"}
    assert record.partitions[:2] == made.record.partitions
    assert [len(p.replicas) for p in record.partitions] == [2] * 5


@run_with(on_store)
async def test_added_partitions_accept_an_assignment(store: SimStore) -> None:
    await topics.create_topic(store, plan(NewTopic("t", 1, 2)))
    await topics.create_partitions(store, image(), RANDOM, "t", 2, [[3, 1]])
    record = await read(store, "t")
    assert record is not None
    assert record.partitions[1].replicas == (3, 1)


@run_with(on_store)
async def test_validation_only_adds_no_partitions(store: SimStore) -> None:
    await topics.create_topic(store, plan(NewTopic("t")))
    await topics.create_partitions(store, image(), RANDOM, "t", 2, None, validate_only=True)
    record = await read(store, "t")
    assert record is not None
    assert len(record.partitions) == 1


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("u", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 10_001, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 2_003, None, ErrorCode.POLICY_VIOLATION),
        ("t", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
@run_with(on_store)
async def test_invalid_partition_counts_are_refused(
    store: SimStore, *, name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    await topics.create_topic(store, plan(NewTopic("t", 2, 1)))
    with pytest.raises(Refused) as refused:
        await topics.create_partitions(store, image(), RANDOM, name, count, assignments)
    assert refused.value.code is code


@run_with(on_store)
async def test_added_partitions_need_as_many_brokers_as_the_replication_factor(
    store: SimStore,
) -> None:
    await topics.create_topic(store, plan(NewTopic("t", 1, 3)))
    lone = image(brokers={1: BROKERS[1]})
    with pytest.raises(Refused) as refused:
        await topics.create_partitions(store, lone, RANDOM, "t", 2, None)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_planning_needs_no_store() -> None:
    assert EMPTY.topics == {}
    with pytest.raises(Refused, match="only 0 broker"):
        topics.plan_topic(NewTopic("t"), EMPTY, BrokerConfigs(), RANDOM)
