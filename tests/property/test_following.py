"""Whatever two logs have been through, the follower's becomes the leader's, keeping what both have.

Histories as elections make them: each epoch has one leader, whose log at its beginning is what the
epoch's batches follow. Two replicas that took part in different epochs share a beginning, then
part.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.log import Log
from penstock.wire.records import Record, encode, read_header
from tests.run_with import run_with
from tests.unit.cluster.replicas import (
    NOW_MS,
    ModelLeader,
    Node,
    content,
    replicate,
    until,
)

Batch = tuple[int, bytes, int]
"""Epoch, value and number of records."""


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Batch], list[Batch]]:
    """Logs of a leader and a follower after some epochs that either of them led."""
    leader: list[Batch] = []
    follower: list[Batch] = []
    for epoch in range(1, draw(st.integers(2, 8))):
        led, other = (leader, follower) if draw(st.booleans()) else (follower, leader)
        count = draw(st.integers(0, 4))
        led += [(epoch, b"%d.%d" % (epoch, at), draw(st.integers(1, 3))) for at in range(count)]
        # The other one follows for a while: it cuts what differs, and copies some of the rest.
        if draw(st.booleans()):
            same = shared(led, other)
            del other[same:]
            other += led[same : draw(st.integers(same, len(led)))]
    return leader, follower


def shared(one: list[Batch], other: list[Batch]) -> int:
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )


def fill(log: Log, batches: list[Batch]) -> None:
    for epoch, value, count in batches:
        batch = memoryview(encode([Record(0, NOW_MS, None, value, ())] * count))
        log.append(batch, read_header(batch), epoch, NOW_MS)
    log.sync()


@settings(max_examples=60, deadline=None)
@given(histories(), st.booleans(), st.sampled_from([200, 1_000_000]))
@run_with(replicate)
async def test_follower_log_becomes_equal_to_the_leader_log(
    node: Node,
    leader: ModelLeader,
    *,
    both: tuple[list[Batch], list[Batch]],
    led_last: bool,
    segment_bytes: int,
) -> None:
    theirs, ours = both

    led = leader.lead("t", epoch=99, segment_bytes=segment_bytes)
    fill(led.log, theirs)
    copy = node.open("t", 1, epoch=99, segment_bytes=segment_bytes)
    fill(copy.log, ours)
    if led_last:
        copy.log.begin_epoch(98)  # Elected, and gone before the first write.
    same = content(led.log)[: sum(_size(batch) for batch in theirs[: shared(theirs, ours)])]
    node.follow()
    await until(
        lambda: (
            copy.log.durable_offset == led.log.end_offset and content(copy.log) == content(led.log)
        )
    )
    assert content(copy.log).startswith(same)
    leader.append("t", b"after")
    await until(lambda: copy.log.durable_offset == led.log.end_offset)
    assert content(copy.log) == content(led.log)
    assert copy.log.epochs.encode() == led.log.epochs.encode()
    # Common records were never truncated: the follower did not go back behind them.
    lowest = sum(count for _, _, count in theirs[: shared(theirs, ours)])
    assert min(led.fetched) >= lowest


def _size(batch: Batch) -> int:
    _, value, count = batch
    return len(encode([Record(0, NOW_MS, None, value, ())] * count))
