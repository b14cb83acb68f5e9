"""Changing the states of partitions in the store, many at a time.

Owns: packing changes into transactions, and what happens when one is refused or its result is
unknown. A change is a `PartitionWish`: a partition, and a pure function from its present record to
the next one. Wishes are decided from the image and committed in chunks, each record guarded by its
own revision; a chunk that fails is gone through one by one, each decided again from a linearizable
read. So nothing is written on the strength of a record that has changed, and a result that was
unknown is looked up before it is asked for again.

Invariants: no transaction has more than `COMMIT_CHANGES_MAX` guards or changes. The
first state of a partition is also guarded by its topic's record, so that no key is left behind for
a topic that was deleted meanwhile.
Leaves to others: what to wish for (`elections`, `reassignment`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import parse_topic_id
from penstock.base.ports import COMMIT_CHANGES_MAX, Expect, Put, Store, UnknownResult
from penstock.base.retry import Retry
from penstock.cluster.configs.configs import BrokerConfigs
from penstock.cluster.controller import elections
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import PartitionRecord, TopicRecord

LANES = 4
"""Transactions under way at once: a store syncs several as fast as one."""
ATTEMPTS = 8
PAUSE_SECONDS = (0.02, 1.0)
TROUBLE = (UnknownResult, TimeoutError, ConnectionError)

UpdateFunction = Callable[[PartitionRecord], PartitionRecord | None]
"""The next record, or None if all is as it should be; may raise Refused."""


class ControllerLost(Exception):
    """What the whole change depended on no longer holds."""


@dataclass(frozen=True, slots=True)
class PartitionWish:
    topic: TopicImage
    index: int
    decide: UpdateFunction


@dataclass(frozen=True, slots=True)
class Changed:
    before: PartitionRecord
    after: PartitionRecord
    revision: int


UpdateOutcome = Changed | Refused | None
"""None: there was nothing to change."""


def guards(topic: TopicImage, index: int) -> list[Expect]:
    """What a change of this partition's state expects, given the image that shows it."""
    return _guards(topic, index, topic.state(index).revision, topic.revision)


async def change(
    store: Store, wishes: Sequence[PartitionWish], seat: Sequence[Expect] = ()
) -> list[UpdateOutcome]:
    """Makes every wish come true that still can; the outcomes are in the wishes' order.

    `seat` guards every transaction; when it does not hold, SeatLost is raised and the rest is
    left undone.
    """
    outcomes: list[UpdateOutcome] = [None] * len(wishes)
    drafts: list[_Draft] = []
    for place, wish in enumerate(wishes):
        before = wish.topic.state(wish.index).record
        try:
            after = wish.decide(before)
        except Refused as refused:
            outcomes[place] = refused
            continue
        if after is not None:
            expects = tuple(guards(wish.topic, wish.index))
            drafts.append(_Draft(place, wish, before, after, expects))
    chunks = deque(_pack(drafts, COMMIT_CHANGES_MAX - len(seat)))
    async with asyncio.TaskGroup() as group:
        lanes = [
            group.create_task(_work(store, chunks, seat, outcomes))
            for _ in range(min(LANES, len(chunks)))
        ]
    for lane in lanes:
        lost = lane.result()
        if lost is not None:
            raise lost
    return outcomes


async def leave(
    store: Store,
    follower: MetadataWatcher,
    configs: BrokerConfigs,
    name: str,
    index: int,
    node_id: int,
) -> None:
    """Takes a replica out of ISR and ELR before it throws away what it has.

    When this returns, no record makes it a leader until its copy is whole again. Raises Refused
    if the store does not confirm that.
    """
    image = follower.image
    topic = image.topics.get(name)
    if topic is None:
        return
    rules = elections.rules_of(topic, configs)

    def decide(record: PartitionRecord) -> PartitionRecord | None:
        return elections.without(record, node_id, image.brokers, rules)

    # Without a chunk's shortcut: the image may be older than the record.
    outcome = await _change_one(store, PartitionWish(topic, index, decide), ())
    if isinstance(outcome, Refused):
        raise outcome


@dataclass(frozen=True, slots=True)
class _Draft:
    place: int
    wish: PartitionWish
    before: PartitionRecord
    after: PartitionRecord
    guards: tuple[Expect, ...]


def guards_of(topic: TopicImage, index: int, present: "Present") -> list[Expect]:
    """As `guards`, given what was read from the store."""
    return _guards(topic, index, present.revision, present.topic_revision)


def _guards(topic: TopicImage, index: int, revision: int, topic_revision: int) -> list[Expect]:
    expects = [Expect(store_keys.partition_key(topic.id, index), revision)]
    if revision == 0:
        expects.append(Expect(store_keys.topic_key(topic.name), topic_revision))
    return expects


def _pack(drafts: Sequence[_Draft], room: int) -> Iterator[list[_Draft]]:
    """Chunks of which each fits a transaction; a topic's guard is needed once in each."""
    chunk: list[_Draft] = []
    expects: dict[Expect, None] = {}
    for draft in drafts:
        more = [expect for expect in draft.guards if expect not in expects]
        if chunk and len(expects) + len(more) > room:
            yield chunk
            chunk, expects = [], {}
            more = list(draft.guards)
        chunk.append(draft)
        expects.update(dict.fromkeys(more))
    if chunk:
        yield chunk


async def _work(
    store: Store,
    chunks: deque[list[_Draft]],
    seat: Sequence[Expect],
    outcomes: list[UpdateOutcome],
) -> ControllerLost | None:
    """Takes chunks until none is left, or until the seat is lost for everybody."""
    while chunks:
        try:
            await _commit_chunk(store, chunks.popleft(), seat, outcomes)
        except ControllerLost as lost:
            chunks.clear()
            return lost
    return None


async def _commit_chunk(
    store: Store, chunk: Sequence[_Draft], seat: Sequence[Expect], outcomes: list[UpdateOutcome]
) -> None:
    revision = await _commit(store, chunk, seat)
    if revision is not None:
        for draft in chunk:
            outcomes[draft.place] = Changed(draft.before, draft.after, revision)
        return
    await _check_seat(store, seat)
    for draft in chunk:
        outcomes[draft.place] = await _change_one(store, draft.wish, seat, draft.after)


async def _commit(store: Store, chunk: Sequence[_Draft], seat: Sequence[Expect]) -> int | None:
    """The revision, or None if it was refused or nobody knows."""
    expects = dict.fromkeys(seat)
    for draft in chunk:
        expects.update(dict.fromkeys(draft.guards))
    puts = [_put(draft.wish, draft.after) for draft in chunk]
    try:
        return await store.commit(list(expects), puts)
    except TROUBLE:
        return None


async def _check_seat(store: Store, seat: Sequence[Expect]) -> None:
    for expect in seat:
        try:
            entry = await store.get(expect.key)
        except TROUBLE:
            return  # Not known to be lost.
        if (entry.revision if entry else 0) != expect.revision:
            raise ControllerLost(expect.key)


async def _change_one(
    store: Store, wish: PartitionWish, seat: Sequence[Expect], wanted: PartitionRecord | None = None
) -> UpdateOutcome:
    """One partition, decided from what the store has now. `wanted` may have been written."""
    retry = Retry(store.random, *PAUSE_SECONDS)
    for _ in range(ATTEMPTS):
        try:
            present = await read(store, wish.topic, wish.index)
            if present is None:
                return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if present.record == wanted and present.revision:
                return Changed(wish.topic.state(wish.index).record, wanted, present.revision)
            after = wish.decide(present.record)
            if after is None:
                return None
            wanted = after
            expects = guards_of(wish.topic, wish.index, present)
            revision = await store.commit([*seat, *expects], [_put(wish, after)])
            if revision is not None:
                return Changed(present.record, after, revision)
            await _check_seat(store, seat)
        except Refused as refused:
            return refused
        except TROUBLE:
            await retry.pause()
    return Refused(ErrorCode.REQUEST_TIMED_OUT, "the metadata store did not confirm the change")


@dataclass(frozen=True, slots=True)
class Present:
    """A partition's record as the store has it, and what its next change expects."""

    record: PartitionRecord
    revision: int
    topic_revision: int


async def read(store: Store, topic: TopicImage, index: int) -> Present | None:
    """A partition's state as the store has it, or None if the topic is gone."""
    entry = await store.get(store_keys.partition_key(topic.id, index))
    if entry is not None:
        return Present(store_keys.decode(PartitionRecord, entry.value), entry.revision, 0)
    parent = await store.get(store_keys.topic_key(topic.name))
    if parent is None:
        return None
    record = store_keys.decode(TopicRecord, parent.value)
    if parse_topic_id(record.id) != topic.id:
        return None
    return Present(record.partitions[index], 0, parent.revision)


def _put(wish: PartitionWish, record: PartitionRecord) -> Put:
    return Put(store_keys.partition_key(wish.topic.id, wish.index), store_keys.encode(record))
