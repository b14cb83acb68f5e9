"""Updates of partition records in the store, many at a time.

Owns: packing updates into transactions, and handling refused commits and unknown results. A
`PartitionUpdate` is a partition, and a pure function from its present record to the next one. The
updates are decided from the image and committed in chunks, each record guarded by its own revision.
A chunk that fails is retried one by one, each decided again from a linearizable read. So no update
is written on the basis of a record that has changed, and an unknown result is looked up before a
retry.

Invariants: no transaction has more than `COMMIT_CHANGES_MAX` guards or changes. The first record of
a partition is also guarded by its topic's record, so that no key is left behind for a topic that
was deleted meanwhile.
Elsewhere: the decisions (`leader_elections`, `reassignment`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import parse_topic_id
from penstock.base.ports import COMMIT_CHANGES_MAX, Expect, Put, Store, UnknownResult
from penstock.base.retry import Retry
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller import leader_elections
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import PartitionRecord, TopicRecord

CONCURRENT_COMMITS = 4
"""Concurrent transactions: a store syncs several as fast as one."""
ATTEMPTS = 8
PAUSE_SECONDS = (0.02, 1.0)
STORE_ERRORS = (UnknownResult, TimeoutError, ConnectionError)

UpdateFunction = Callable[[PartitionRecord], PartitionRecord | None]
"""Returns the next record, or None if nothing is to change; may raise Refused."""


class ControllerLost(Exception):
    """The guard of the whole change failed: this node is no longer the controller."""


@dataclass(frozen=True, slots=True)
class PartitionUpdate:
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
    """Expectations of an update to this partition's record, by the image that shows it."""
    return _guards(topic, index, topic.state(index).revision, topic.revision)


async def apply(
    store: Store, updates: Sequence[PartitionUpdate], controller_guard: Sequence[Expect] = ()
) -> list[UpdateOutcome]:
    """Applies every update that still applies; the outcomes have the updates' order.

    `controller_guard` guards every transaction; when it fails, ControllerLost is raised, and the
    remaining updates are not applied.
    """
    outcomes: list[UpdateOutcome] = [None] * len(updates)
    prepared: list[_Prepared] = []
    for place, update in enumerate(updates):
        before = update.topic.state(update.index).record
        try:
            after = update.decide(before)
        except Refused as refused:
            outcomes[place] = refused
            continue
        if after is not None:
            expects = tuple(guards(update.topic, update.index))
            prepared.append(_Prepared(place, update, before, after, expects))
    chunks = deque(_pack(prepared, COMMIT_CHANGES_MAX - len(controller_guard)))
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_work(store, chunks, controller_guard, outcomes))
            for _ in range(min(CONCURRENT_COMMITS, len(chunks)))
        ]
    for task in tasks:
        lost = task.result()
        if lost is not None:
            raise lost
    return outcomes


async def leave(
    store: Store,
    watcher: MetadataWatcher,
    configs: BrokerConfigs,
    name: str,
    index: int,
    node_id: int,
) -> None:
    """Removes a replica from ISR and ELR before its records are discarded.

    On return no record makes it a leader until it has copied the log again. Raises Refused if the
    store does not confirm that.
    """
    image = watcher.image
    topic = image.topics.get(name)
    if topic is None:
        return
    rules = leader_elections.rules_of(topic, configs)

    def decide(record: PartitionRecord) -> PartitionRecord | None:
        return leader_elections.without(record, node_id, image.brokers, rules)

    # Not as a chunk: the image may be older than the record.
    outcome = await _change_one(store, PartitionUpdate(topic, index, decide), ())
    if isinstance(outcome, Refused):
        raise outcome


@dataclass(frozen=True, slots=True)
class _Prepared:
    place: int
    update: PartitionUpdate
    before: PartitionRecord
    after: PartitionRecord
    guards: tuple[Expect, ...]


def guards_of(topic: TopicImage, index: int, present: "Present") -> list[Expect]:
    """As `guards`, from what was read from the store."""
    return _guards(topic, index, present.revision, present.topic_revision)


def _guards(topic: TopicImage, index: int, revision: int, topic_revision: int) -> list[Expect]:
    expects = [Expect(store_keys.partition_key(topic.id, index), revision)]
    if revision == 0:
        expects.append(Expect(store_keys.topic_key(topic.name), topic_revision))
    return expects


def _pack(prepared: Sequence[_Prepared], capacity: int) -> Iterator[list[_Prepared]]:
    """Chunks that each fit a transaction; each needs a topic's guard only once."""
    chunk: list[_Prepared] = []
    expects: dict[Expect, None] = {}
    for draft in prepared:
        more = [expect for expect in draft.guards if expect not in expects]
        if chunk and len(expects) + len(more) > capacity:
            yield chunk
            chunk, expects = [], {}
            more = list(draft.guards)
        chunk.append(draft)
        expects.update(dict.fromkeys(more))
    if chunk:
        yield chunk


async def _work(
    store: Store,
    chunks: deque[list[_Prepared]],
    controller_guard: Sequence[Expect],
    outcomes: list[UpdateOutcome],
) -> ControllerLost | None:
    """Commits chunks until none is left, or this node is no longer the controller."""
    while chunks:
        try:
            await _commit_chunk(store, chunks.popleft(), controller_guard, outcomes)
        except ControllerLost as lost:
            chunks.clear()
            return lost
    return None


async def _commit_chunk(
    store: Store,
    chunk: Sequence[_Prepared],
    controller_guard: Sequence[Expect],
    outcomes: list[UpdateOutcome],
) -> None:
    revision = await _commit(store, chunk, controller_guard)
    if revision is not None:
        for draft in chunk:
            outcomes[draft.place] = Changed(draft.before, draft.after, revision)
        return
    await _check_controller(store, controller_guard)
    for draft in chunk:
        outcomes[draft.place] = await _change_one(
            store, draft.update, controller_guard, draft.after
        )


async def _commit(
    store: Store, chunk: Sequence[_Prepared], controller_guard: Sequence[Expect]
) -> int | None:
    """Revision of the commit; None if it was refused or its result is unknown."""
    expects = dict.fromkeys(controller_guard)
    for draft in chunk:
        expects.update(dict.fromkeys(draft.guards))
    puts = [_put(draft.update, draft.after) for draft in chunk]
    try:
        return await store.commit(list(expects), puts)
    except STORE_ERRORS:
        return None


async def _check_controller(store: Store, controller_guard: Sequence[Expect]) -> None:
    for expect in controller_guard:
        try:
            entry = await store.get(expect.key)
        except STORE_ERRORS:
            return  # Not known to be lost.
        if (entry.revision if entry else 0) != expect.revision:
            raise ControllerLost(expect.key)


async def _change_one(
    store: Store,
    update: PartitionUpdate,
    controller_guard: Sequence[Expect],
    wanted: PartitionRecord | None = None,
) -> UpdateOutcome:
    """Updates one partition from what the store has now. `wanted` may have been written already."""
    retry = Retry(store.random, *PAUSE_SECONDS)
    for _ in range(ATTEMPTS):
        try:
            present = await read(store, update.topic, update.index)
            if present is None:
                return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if present.record == wanted and present.revision:
                return Changed(update.topic.state(update.index).record, wanted, present.revision)
            after = update.decide(present.record)
            if after is None:
                return None
            wanted = after
            expects = guards_of(update.topic, update.index, present)
            revision = await store.commit([*controller_guard, *expects], [_put(update, after)])
            if revision is not None:
                return Changed(present.record, after, revision)
            await _check_controller(store, controller_guard)
        except Refused as refused:
            return refused
        except STORE_ERRORS:
            await retry.pause()
    return Refused(ErrorCode.REQUEST_TIMED_OUT, "the metadata store did not confirm the change")


@dataclass(frozen=True, slots=True)
class Present:
    """A partition's record in the store, and the revisions that its next update expects."""

    record: PartitionRecord
    revision: int
    topic_revision: int


async def read(store: Store, topic: TopicImage, index: int) -> Present | None:
    """Reads a partition's record from the store; None if the topic is gone."""
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


def _put(update: PartitionUpdate, record: PartitionRecord) -> Put:
    return Put(store_keys.partition_key(update.topic.id, update.index), store_keys.encode(record))
