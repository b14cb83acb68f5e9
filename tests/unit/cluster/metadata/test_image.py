"""The image: what changes make of it, and what they must not touch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import NodeId, TopicId, show_topic_id
from penstock.base.ports import Change, StoreEntry
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import EMPTY, NO_NODE, Image, entity_at, load, path_of
from penstock.cluster.metadata.store_keys import (
    BrokerRecord,
    ClusterRecord,
    ConfigsRecord,
    ControllerRecord,
    DeletedRecord,
    FanoutRecord,
    PartitionRecord,
    ReachRecord,
    TopicRecord,
)
from penstock.security.quotas import DEFAULT, Entity

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)
BORN = PartitionRecord(replicas=(1,), leader=1, isr=(1,))
MOVED = PartitionRecord(replicas=(1, 2), leader=2, isr=(2,), leader_epoch=1)


def topic(topic_id: TopicId, partitions: int = 2, **configs: str) -> bytes:
    record = TopicRecord(show_topic_id(topic_id), (BORN,) * partitions, configs)
    return store_keys.encode(record)


def put(revision: int, key: str, value: bytes | None) -> Change:
    return Change(key, value, revision)


def test_topic_is_found_by_name_and_by_id() -> None:
    image = EMPTY.apply([put(5, "/topics/t", topic(A))])
    assert image.revision == 5
    assert image.topics["t"] is image.topics_by_id[A]
    assert image.topic("t") is image.topics["t"]
    assert image.topic("u") is None
    assert image.partition("t", 1) == BORN
    assert image.partition("t", 2) is None
    assert image.partition("t", -1) is None
    assert image.partition("u", 0) is None


def test_image_is_immutable() -> None:
    before = EMPTY.apply([put(1, "/topics/t", topic(A))])
    after = before.apply([put(2, "/topics/t", None), put(2, "/topics/u", topic(B))])
    assert list(before.topics) == ["t"]
    assert list(before.topics_by_id) == [A]
    assert list(after.topics) == ["u"]
    assert list(after.topics_by_id) == [B]


def test_partition_key_overrides_the_initial_state() -> None:
    image = EMPTY.apply([put(1, "/topics/t", topic(A))])
    assert image.topics["t"].state(1).revision == 0
    moved = image.apply([put(2, store_keys.partition_key(A, 1), store_keys.encode(MOVED))])
    assert moved.topics["t"].partitions == (BORN, MOVED)
    assert moved.topics_by_id[A] is moved.topics["t"]
    assert moved.topics["t"].state(1).record == MOVED
    assert moved.topics["t"].state(1).revision == 2
    back = moved.apply([put(3, store_keys.partition_key(A, 1), None)])
    assert back.topics["t"].partitions == (BORN, BORN)


def test_config_change_keeps_the_partition_states() -> None:
    image = EMPTY.apply([put(1, "/topics/t", topic(A))])
    image = image.apply([put(2, store_keys.partition_key(A, 0), store_keys.encode(MOVED))])
    image = image.apply([put(3, "/topics/t", topic(A, 3, x="1"))])
    assert image.topics["t"].configs == {"x": "1"}
    assert image.topics["t"].partitions == (MOVED, BORN, BORN)


def test_new_topic_of_a_reused_name_inherits_nothing() -> None:
    image = EMPTY.apply([put(1, "/topics/t", topic(A))])
    image = image.apply([put(2, store_keys.partition_key(A, 0), store_keys.encode(MOVED))])
    image = image.apply([put(3, "/topics/t", topic(B))])
    assert image.topics["t"].partitions == (BORN, BORN)
    assert A not in image.topics_by_id


def test_partition_state_without_its_topic_is_ignored() -> None:
    image = EMPTY.apply([put(1, store_keys.partition_key(A, 0), store_keys.encode(MOVED))])
    assert image.topics == {}
    image = EMPTY.apply([put(1, "/topics/t", topic(A, 1))])
    image = image.apply([put(2, store_keys.partition_key(A, 9), store_keys.encode(MOVED))])
    assert image.topics["t"].partitions == (BORN,)


def test_loading_equals_applying_changes() -> None:
    changes = [
        put(1, "/cluster-id", store_keys.encode(ClusterRecord("c"))),
        put(2, "/brokers/10", store_keys.encode(BrokerRecord(10, "h", 1))),
        put(3, "/brokers/2", store_keys.encode(BrokerRecord(2, "h", 2))),
        put(4, "/topics/t", topic(A)),
        put(5, store_keys.partition_key(A, 0), store_keys.encode(MOVED)),
        put(6, "/configs/cluster", store_keys.encode(ConfigsRecord({"a": "1"}))),
        put(7, "/configs/brokers/2", store_keys.encode(ConfigsRecord({"b": "2"}))),
        put(8, "/configs/groups/g/h", store_keys.encode(ConfigsRecord({"c": "3"}))),
        put(9, store_keys.deleted_key(B), store_keys.encode(DeletedRecord("u", 4))),
        put(10, "/controller", store_keys.encode(ControllerRecord(10, 3))),
        put(11, "/something-newer", b"?"),
        put(12, "/sns/news", store_keys.encode(FanoutRecord(tags={"d": "4"}))),
    ]
    followed = EMPTY
    for change in changes:
        followed = followed.apply([change])
    entries = sorted(
        (StoreEntry(change.key, change.value or b"", change.revision) for change in changes),
        key=lambda entry: entry.key,
    )
    loaded = load(12, entries)
    assert loaded == followed
    assert list(loaded.brokers) == [2, 10]
    assert loaded.cluster_configs == {"a": "1"}
    assert loaded.broker_configs == {2: {"b": "2"}}
    assert loaded.group_configs == {"g/h": {"c": "3"}}
    assert loaded.deleted == {B: DeletedRecord("u", 4)}
    assert loaded.fanouts == {"news": FanoutRecord(tags={"d": "4"})}
    assert loaded.cluster_id == "c"


def test_deleting_every_key_empties_the_image() -> None:
    image = EMPTY.apply(
        [
            put(1, "/brokers/2", store_keys.encode(BrokerRecord(2, "h", 2))),
            put(1, "/configs/cluster", store_keys.encode(ConfigsRecord({"a": "1"}))),
            put(1, "/configs/brokers/2", store_keys.encode(ConfigsRecord({"b": "2"}))),
            put(1, "/configs/groups/g", store_keys.encode(ConfigsRecord({"c": "3"}))),
            put(1, store_keys.deleted_key(B), store_keys.encode(DeletedRecord("u", 4))),
            put(1, "/controller", store_keys.encode(ControllerRecord(2))),
            put(1, "/sns/news", store_keys.encode(FanoutRecord())),
        ]
    )
    image = image.apply(
        [
            put(2, "/brokers/2", None),
            put(2, "/configs/cluster", None),
            put(2, "/configs/brokers/2", None),
            put(2, "/configs/groups/g", None),
            put(2, store_keys.deleted_key(B), None),
            put(2, "/controller", None),
            put(2, "/sns/news", None),
        ]
    )
    assert image == Image(2, "", {}, {}, None, 0, {}, {}, {}, {}, {}, {})


def test_reach_reports_are_by_broker_and_ignore_newer_fields() -> None:
    image = EMPTY.apply(
        [
            put(1, "/reach/2", b'{"broker_epoch":5,"unreached":{"1":4},"since":17}'),
            put(1, "/of-a-newer-node/1", b"anything"),
        ]
    )
    assert image.reach == {2: ReachRecord(5, {1: 4})}
    assert image.apply([put(2, "/reach/2", None)]).reach == {}


def test_controller_is_the_elected_broker_or_the_first_that_is_up() -> None:
    assert EMPTY.controller_id == NO_NODE
    image = EMPTY.apply(
        [
            put(1, "/brokers/7", store_keys.encode(BrokerRecord(7, "h", 2))),
            put(1, "/brokers/5", store_keys.encode(BrokerRecord(5, "h", 2))),
        ]
    )
    assert image.controller_id == NodeId(5)
    elected = image.apply([put(2, "/controller", store_keys.encode(ControllerRecord(7)))])
    assert elected.controller_id == NodeId(7)
    gone = elected.apply([put(3, "/brokers/7", None)])
    assert gone.controller_id == NodeId(5)


def test_internal_topics_are_recognized_by_name() -> None:
    image = EMPTY.apply([put(1, "/topics/__consumer_offsets", topic(A))])
    assert image.topics["__consumer_offsets"].is_internal


NAMES = st.one_of(st.none(), st.just(DEFAULT), st.text(min_size=1, max_size=20))


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (Entity("alice"), "user/alice"),
        (Entity(DEFAULT, "a/b"), "user/<default>/client-id/a%2Fb"),
        (Entity(ip="::1"), "ip/%3A%3A1"),
        (Entity("<default>"), "user/%3Cdefault%3E"),
    ],
)
def test_quota_path_names_its_entity(entity: Entity, path: str) -> None:
    assert path_of(entity) == path
    assert entity_at(path) == entity


@given(st.builds(Entity, NAMES, NAMES, NAMES).filter(lambda entity: entity != Entity()))
def test_quota_path_round_trips_any_entity(entity: Entity) -> None:
    assert entity_at(path_of(entity)) == entity
