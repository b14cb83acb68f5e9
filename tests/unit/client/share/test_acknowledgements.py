"""Pending acknowledgements: groups, halves and ranges."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.share.acknowledgements import (
    NEVER_DELIVERED,
    Ack,
    AcknowledgementType,
    AckOptions,
    PendingAcks,
    batches_of,
)
from tests.run_with import in_new_loop, run_with


def accept(offset: int) -> Ack:
    return Ack(offset, AcknowledgementType.ACCEPT)


def offsets(group: list[Ack]) -> list[int]:
    return [ack.offset for ack in group]


def test_acknowledgements_are_sent_together_in_order() -> None:
    acks = PendingAcks()
    assert not acks
    for offset in (3, 1, 2):
        acks.add(accept(offset))
    assert offsets(acks.take()) == [1, 2, 3]
    assert not acks


def test_unsent_acknowledgements_go_first_and_alone() -> None:
    acks = PendingAcks()
    acks.add(accept(1))
    first = acks.take()
    acks.add(accept(2))
    acks.put_back(first)
    acks.add(accept(3))
    assert offsets(acks.take()) == [1]
    assert offsets(acks.take()) == [2, 3]


def test_refused_group_is_halved_until_one_remains() -> None:
    acks = PendingAcks()
    for offset in range(8):
        acks.add(accept(offset))
    requests, culprit = 0, None
    while acks:
        group = acks.take()
        requests += 1
        if 5 in offsets(group):
            if len(group) == 1:
                culprit = group[0].offset
            else:
                acks.halve(group)
    assert culprit == 5
    assert requests == 7


@run_with(in_new_loop)
async def test_acknowledgement_replaces_a_renewal_of_its_record() -> None:
    done = asyncio.get_running_loop().create_future()
    acks = PendingAcks()
    acks.add(Ack(1, AcknowledgementType.RENEW, done=done))
    acks.add(accept(1))
    (ack,) = acks.take()
    assert ack.kind is AcknowledgementType.ACCEPT
    assert done.result() is None


def test_neighbouring_equal_acknowledgements_are_one_range() -> None:
    delayed = AckOptions(delay_ms=5)
    acks = [
        accept(1),
        accept(2),
        Ack(3, AcknowledgementType.RELEASE, delayed),
        Ack(4, AcknowledgementType.RELEASE, delayed),
        Ack(5, AcknowledgementType.RELEASE, NEVER_DELIVERED),
        accept(7),
        Ack(8, AcknowledgementType.REJECT, AckOptions(error_class="E", error_message="m")),
    ]
    found = batches_of(acks)
    assert [(b.first_offset, b.last_offset, *b.acknowledge_types) for b in found] == [
        (1, 2, 1),
        (3, 4, 2),
        (5, 5, 2),
        (7, 7, 1),
        (8, 8, 3),
    ]
    assert [b.delay_ms for b in found] == [-1, 5, 0, -1, -1]
    assert [b.is_unseen for b in found] == [False, False, True, False, False]
    assert (found[4].error_class, found[4].error_message) == ("E", "m")


@run_with(in_new_loop)
async def test_waiter_is_notified_once() -> None:
    done = asyncio.get_running_loop().create_future()
    ack = Ack(1, AcknowledgementType.ACCEPT, done=done)
    ack.fail(Refused(ErrorCode.INVALID_RECORD_STATE, "gone"))
    ack.succeed()
    with pytest.raises(Refused, match="gone"):
        await done
    accept(1).fail(Refused(ErrorCode.INVALID_RECORD_STATE, "no waiter"))
