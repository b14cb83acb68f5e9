"""Data in fetched bytes: control batches and aborted transactions are skipped."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.consumer.fetched import Fetched, next_offset_after
from penstock.client.metadata import TopicPartition
from penstock.wire.control_batches import encode_marker
from penstock.wire.messages.fetch import AbortedTransaction
from penstock.wire.records import Codec, Record, encode, stamp
from tests.unit.log.building import unreadable


def data(offset: int, producer_id: int, *values: bytes) -> bytearray:
    return encode(
        [Record(0, 0, None, value) for value in values],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=producer_id >= 0,
    )


def marker(offset: int, producer_id: int, *, committed: bool) -> bytearray:
    return encode_marker(
        committed=committed,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=offset,
    )


def fetched(*batches: bytearray, aborted: tuple[tuple[int, int], ...] = ()) -> Fetched:
    view = memoryview(b"".join(batches))
    return Fetched(
        where=TopicPartition("t", 0),
        offset=0,
        next_offset=next_offset_after(view, 0),
        high_watermark=100,
        last_stable_offset=100,
        log_start_offset=0,
        records=view,
        aborted=[AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted],
    )


def values(part: Fetched) -> list[bytes | None]:
    return [message.value for message in part.messages()]


def test_control_batches_move_the_position_without_data() -> None:
    part = fetched(data(0, 7, b"a"), marker(1, 7, committed=True))
    assert values(part) == [b"a"]
    assert part.next_offset == 2


def test_aborted_batches_are_skipped() -> None:
    part = fetched(
        data(0, 7, b"aborted"),
        data(1, 8, b"committed"),
        data(2, -1, b"plain"),
        data(3, 7, b"aborted too"),
        marker(4, 7, committed=False),
        data(5, 7, b"next transaction"),
        marker(6, 7, committed=True),
        marker(7, 8, committed=True),
        aborted=((7, 0),),
    )
    assert values(part) == [b"committed", b"plain", b"next transaction"]
    assert part.next_offset == 8


def test_producer_may_abort_twice() -> None:
    part = fetched(
        data(0, 7, b"x"),
        marker(1, 7, committed=False),
        data(2, 7, b"good"),
        marker(3, 7, committed=True),
        data(4, 7, b"y"),
        marker(5, 7, committed=False),
        aborted=((7, 0), (7, 4)),
    )
    assert values(part) == [b"good"]


def test_truncated_batch_is_left_for_the_next_fetch() -> None:
    whole = data(0, -1, b"a", b"b")
    part = fetched(whole, data(2, -1, b"c")[:-3])
    assert values(part) == [b"a", b"b"]
    assert part.next_offset == 2


def test_batch_with_a_wrong_checksum_is_never_returned() -> None:
    broken = data(0, -1, b"precious")
    broken[-3] ^= 1
    with pytest.raises(Refused) as caught:
        values(fetched(broken))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_undecodable_batch_names_its_offsets_and_the_next_one() -> None:
    junk = bytearray(unreadable(Codec.NONE))
    stamp(junk, 1, 0)
    part = fetched(data(0, -1, b"a"), junk)
    messages = part.messages()
    assert next(messages).value == b"a"
    with pytest.raises(
        Refused, match=r"^t\[0\]: offsets 1 to 3 .*; read on at offset 4$"
    ) as caught:
        next(messages)
    assert caught.value.code is ErrorCode.INVALID_RECORD
