"""An image that followed every change is the image that is loaded at the end."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import TopicId, parse_topic_id, show_topic_id
from penstock.base.ports import Change, StoreEntry
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import EMPTY, Image, load
from penstock.cluster.metadata.store_keys import (
    BrokerRecord,
    ConfigsRecord,
    DeletedRecord,
    PartitionRecord,
    TopicRecord,
)

IDS = [TopicId(bytes([number]) * 16) for number in (1, 2, 3)]
NAMES = ["a", "b"]

partitions = st.builds(
    PartitionRecord,
    replicas=st.just((1, 2)),
    leader=st.integers(1, 2),
    isr=st.just((1,)),
    leader_epoch=st.integers(0, 3),
)


def topic(topic_id: TopicId, born: list[PartitionRecord]) -> bytes:
    return store_keys.encode(TopicRecord(show_topic_id(topic_id), tuple(born), {"k": "v"}))


puts = st.one_of(
    st.tuples(
        st.sampled_from(NAMES).map(store_keys.topic_key),
        st.builds(topic, st.sampled_from(IDS), st.lists(partitions, min_size=1, max_size=3)),
    ),
    st.tuples(
        st.builds(store_keys.partition_key, st.sampled_from(IDS), st.integers(0, 3)),
        partitions.map(store_keys.encode),
    ),
    st.tuples(
        st.integers(1, 3).map(store_keys.broker_key),
        st.builds(BrokerRecord, st.integers(1, 3), st.just("h"), st.just(1)).map(store_keys.encode),
    ),
    st.tuples(
        st.just(store_keys.CLUSTER_CONFIGS), st.just(store_keys.encode(ConfigsRecord({"a": "1"})))
    ),
    st.tuples(
        st.sampled_from(IDS).map(store_keys.deleted_key),
        st.just(store_keys.encode(DeletedRecord("a", 1))),
    ),
)
steps = st.lists(st.tuples(puts, st.booleans()), max_size=40)


def is_made_by_us(image: Image, key: str, value: bytes | None, dead: set[TopicId]) -> bool:
    """Ids are used once, topics never shrink, and only partitions that exist have a state."""
    if value is None:
        return True
    if key.startswith(store_keys.TOPICS):
        record = store_keys.decode(TopicRecord, value)
        known = image.topics_by_id.get(parse_topic_id(record.id))
        if known is None:
            return parse_topic_id(record.id) not in dead
        return store_keys.topic_key(known.name) == key and len(record.partitions) >= len(
            known.initial
        )
    if key.startswith(store_keys.PARTITIONS):
        text, _, index = key.removeprefix(store_keys.PARTITIONS).partition("/")
        known = image.topics_by_id.get(parse_topic_id(text))
        return known is not None and int(index) < len(known.initial)
    return True


@given(steps)
@settings(max_examples=300)
def test_applied_image_equals_the_loaded_one(changes: list[tuple[tuple[str, bytes], bool]]) -> None:
    image, stored, dead = EMPTY, dict[str, StoreEntry](), set[TopicId]()
    revision = 0
    for (key, put), is_delete in changes:
        value = None if is_delete else put
        if not is_made_by_us(image, key, value, dead):
            continue
        revision += 1
        before, image = image, image.apply([Change(key, value, revision)])
        dead |= set(before.topics_by_id) - set(image.topics_by_id)
        if value is None:
            stored.pop(key, None)
        else:
            stored[key] = StoreEntry(key, value, revision)
        for name, found in image.topics.items():
            assert image.topics_by_id[found.id] is found
            assert found.name == name
        assert len(image.topics_by_id) == len(image.topics)
    loaded = load(revision, sorted(stored.values(), key=lambda entry: entry.key))
    assert loaded == image
