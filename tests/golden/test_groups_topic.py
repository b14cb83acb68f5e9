"""Records of `__consumer_offsets`: groups of every kind, their members, and positions."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
import pytest

from penstock.state.groups import records
from penstock.state.groups.records import RecordKind
from tests.golden.book import Book, Sample
from tests.golden.filling import full, minimal
from tests.golden.structs import structs_of

VALUES: Final[dict[str, tuple[type[Any], Callable[[bytes], Any]]]] = {
    "offset": (records.OffsetValue, records.read_offset),
    "pending offset": (records.PendingValue, records.read_pending),
    "producer": (records.ProducerValue, records.read_producer),
    "classic group": (records.ClassicGroupValue, records.read_classic_group),
    "classic member": (records.ClassicMemberValue, records.read_classic_member),
    "consumer group": (records.ConsumerGroupValue, records.read_consumer_group),
    "consumer member": (records.ConsumerMemberValue, records.read_consumer_member),
    "consumer target": (records.TargetValue, records.read_target),
    "consumer current": (records.CurrentValue, records.read_current),
    "share group": (records.ShareGroupValue, records.read_share_group),
    "share member": (records.ShareMemberValue, records.read_share_member),
}
PARTS: Final = {records.Embedded}
"""Nested structs: they are in the full samples."""
OF_GROUPS: Final = {
    "classic group": RecordKind.CLASSIC_GROUP,
    "consumer group": RecordKind.CONSUMER_GROUP,
    "share group": RecordKind.SHARE_GROUP,
}
OF_MEMBERS: Final = {
    "classic member": RecordKind.CLASSIC_MEMBER,
    "consumer member": RecordKind.CONSUMER_MEMBER,
    "consumer target": RecordKind.CONSUMER_TARGET,
    "consumer current": RecordKind.CONSUMER_CURRENT,
    "share member": RecordKind.SHARE_MEMBER,
}


def _samples() -> Iterator[Sample]:
    for name, (kind, read) in VALUES.items():
        for size, value in (("full", full(kind)), ("minimal", minimal(kind))):
            yield Sample(f"value: {name} {size}", records.encode(value), value, read)
    where = ("sales", "orders", 300)
    yield Sample(
        "key: offset",
        records.offset_key(*where),
        (int(RecordKind.OFFSET), records.VERSION, *where),
        records.read_offset_key,
    )
    yield Sample("key: offset, its start", records.offset_key_start("sales", "orders"))
    yield Sample(
        "key: pending offset",
        records.pending_key(70_000, *where),
        (int(RecordKind.PENDING_OFFSET), records.VERSION, 70_000, *where),
        records.read_pending_key,
    )
    yield Sample(
        "key: producer",
        records.producer_key(70_000),
        (int(RecordKind.PRODUCER), records.VERSION, 70_000),
        records.read_producer_key,
    )
    for name, number in OF_GROUPS.items():
        key = records.group_key(number, "sales")
        parts = (int(number), records.VERSION, "sales")
        yield Sample(f"key: {name}", key, parts, records.read_group_key)
    for name, number in OF_MEMBERS.items():
        key = records.member_key(number, "sales", "member-1")
        member = (int(number), records.VERSION, "sales", "member-1")
        yield Sample(f"key: {name}", key, member, records.read_member_key)


BOOK: Final = Book("groups_topic", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_bytes_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_sample_is_lost() -> None:
    BOOK.check_names()


def test_every_value_has_a_sample() -> None:
    sampled = {kind for kind, _ in VALUES.values()}
    assert sampled | PARTS == structs_of(records.__name__)


def test_every_kind_of_key_has_a_sample() -> None:
    keys = [one.data for one in BOOK.samples if one.name.startswith("key: ")]
    assert {records.kind_of(key) for key in keys} == set(RecordKind)


def test_values_of_different_kinds_are_distinguished() -> None:
    for name, (kind, _) in VALUES.items():
        data = records.encode(full(kind))
        for other, (_, read) in VALUES.items():
            if other != name:
                with pytest.raises(msgspec.ValidationError):
                    partial(read, data)()
