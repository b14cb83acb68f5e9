"""Records of the internal topic: equal state gives equal bytes."""

import msgspec

from penstock.state.groups.records import (
    OffsetValue,
    RecordKind,
    encode,
    group_key,
    kind_of,
    member_key,
    offset_key,
    offset_key_start,
    pending_key,
    producer_key,
    read_member_key,
    read_offset,
    read_offset_key,
)


def test_kind_is_read_from_the_keys_first_bytes() -> None:
    keys = {
        RecordKind.OFFSET: offset_key("g" * 300, "t", 5),
        RecordKind.PENDING_OFFSET: pending_key(2**40, "g", "t", 5),
        RecordKind.PRODUCER: producer_key(2**40),
        RecordKind.CLASSIC_GROUP: group_key(RecordKind.CLASSIC_GROUP, "g"),
        RecordKind.CONSUMER_CURRENT: member_key(RecordKind.CONSUMER_CURRENT, "g", "m"),
    }
    assert {kind: kind_of(key) for kind, key in keys.items()} == {kind: kind for kind in keys}


def test_bytes_on_disk_do_not_change() -> None:
    assert offset_key("g", "t", 1) == b"\x95\x01\x00\xa1g\xa1t\x01"
    value = OffsetValue(1, 2, "m", 3, 4, topic_id=b"id")
    assert encode(value) == b"\x98\xa1o\x01\x02\xa1m\x03\x04\xff\xc4\x02id"
    assert member_key(RecordKind.CLASSIC_MEMBER, "g", "m") == b"\x94\x05\x00\xa1g\xa1m"


def test_keys_and_values_come_back() -> None:
    assert read_offset_key(offset_key("g", "t", 7)) == (1, 0, "g", "t", 7)
    assert read_member_key(member_key(RecordKind.CONSUMER_TARGET, "g", "m")) == (8, 0, "g", "m")
    value = OffsetValue(2**50, 3, "note", 5, 6, 7)
    assert read_offset(encode(value)) == value


def test_topics_keys_all_begin_alike() -> None:
    start = offset_key_start("g", "t")
    for partition in (0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1):
        assert start + encode(partition) == offset_key("g", "t", partition)


def test_value_with_fields_of_a_newer_broker_is_still_read() -> None:
    newer = b"\x99\xa1o\x01\x02\xa1m\x03\x04\xff\xc4\x00\x2a"
    assert read_offset(newer) == OffsetValue(1, 2, "m", 3, 4)


class _OffsetWithoutId(msgspec.Struct, array_like=True, tag="o"):
    """A committed offset of brokers that do not store its topic id."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    sequence: int
    expires_ms: int = -1


def test_positions_go_both_ways_between_brokers_that_keep_the_topic_id_and_those_that_do_not() -> (
    None
):
    older = b"\x97\xa1o\x01\x02\xa1m\x03\x04\xff"
    assert read_offset(older) == OffsetValue(1, 2, "m", 3, 4, topic_id=b"")
    kept = encode(OffsetValue(1, 2, "m", 3, 4, topic_id=bytes(16)))
    assert msgspec.msgpack.decode(kept, type=_OffsetWithoutId).offset == 1
