"""Ending a topic that was deleted: its record stays until nobody has its files any more.

Deleting takes the name away and leaves `/deleted/<id>` with the nodes that had a part of it. Each
of them removes its files and confirms; one that was away does so when it returns, for the record
waits for it. When all have, the record goes, and the keys of its partitions before it. A node
that will not return is confirmed for when it is unregistered.

Invariants: a record goes only when every node confirmed that it named, or that a partition's key
names: a move may have added one while the topic was being deleted. The keys go first, in
transactions that fit, each guarded by the record; a crash in between is made good by whoever
confirms or controls next.
Leaves to others: the files (`directories`), when to remove them (`partitions`).
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId, parse_topic_id
from penstock.base.ports import (
    COMMIT_CHANGES_MAX,
    Delete,
    Expect,
    Put,
    Store,
    StoreEntry,
    UnknownResult,
)
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import DeletedRecord, PartitionRecord, TopicRecord

ATTEMPTS = 12


async def confirm(store: Store, topic_id: TopicId, node_id: int) -> None:
    """`node_id` has no files of the topic any more. Raises as the store does."""
    key = store_keys.deleted_key(topic_id)
    for _ in range(ATTEMPTS):
        entry = await store.get(key)
        if entry is None:
            return
        record = store_keys.decode(DeletedRecord, entry.value)
        states = await _states(store, topic_id)
        needed = _needed(record, states)
        if node_id in needed and node_id not in record.confirmed:
            record = replace(record, confirmed=(*record.confirmed, node_id))
        elif not _is_complete(needed, record):
            return
        if _is_complete(needed, record):
            # The last one need not say so first.
            if await _clear(store, entry, states):
                return
        elif await store.commit(
            [Expect(key, entry.revision)], [Put(key, store_keys.encode(record))]
        ):
            return
    raise Refused(ErrorCode.REQUEST_TIMED_OUT, "others kept changing the record of a deleted topic")


async def finish(store: Store, topic_id: TopicId) -> None:
    """Takes the record away if all have confirmed; else leaves it as it is."""
    entry = await store.get(store_keys.deleted_key(topic_id))
    if entry is None:
        return
    record = store_keys.decode(DeletedRecord, entry.value)
    states = await _states(store, topic_id)
    if _is_complete(_needed(record, states), record):
        await _clear(store, entry, states)


async def read_states(store: Store, name: str) -> dict[tuple[str, int], PartitionRecord]:
    """The partitions of a topic that are not as they were born, by its id and their index.

    Only to spare nodes that have long given their replicas away: without it (the store does not
    answer just now) the nodes where the topic was born are asked to confirm, too.
    """
    try:
        entry = await store.get(store_keys.topic_key(name))
        if entry is None:
            return {}
        text = store_keys.decode(TopicRecord, entry.value).id
        states = await _states(store, parse_topic_id(text))
    except (UnknownResult, TimeoutError, ConnectionError):
        return {}
    return {
        (text, int(state.key.rpartition("/")[2])): store_keys.decode(PartitionRecord, state.value)
        for state in states
    }


def replicas_of(partitions: Iterable[PartitionRecord]) -> tuple[int, ...]:
    """Every node that has a part of these."""
    return tuple(sorted({node for record in partitions for node in record.replicas}))


async def _states(store: Store, topic_id: TopicId) -> list[StoreEntry]:
    _, entries = await store.range(store_keys.partitions_prefix(topic_id))
    return entries


def _needed(record: DeletedRecord, states: Sequence[StoreEntry]) -> list[int]:
    """The nodes that must confirm: those the record names, and those that a key names."""
    named = replicas_of(store_keys.decode(PartitionRecord, entry.value) for entry in states)
    return [*record.replicas, *(node for node in named if node not in record.replicas)]


def _is_complete(needed: Sequence[int], record: DeletedRecord) -> bool:
    return all(node in record.confirmed for node in needed)


async def _clear(store: Store, deleted: StoreEntry, states: Sequence[StoreEntry]) -> bool:
    """Everything under the topic's id, the record last; False if the record changed meanwhile."""
    guard = [Expect(deleted.key, deleted.revision)]
    gone = [*(Delete(entry.key) for entry in states), Delete(deleted.key)]
    for start in range(0, len(gone), COMMIT_CHANGES_MAX):
        if await store.commit(guard, gone[start : start + COMMIT_CHANGES_MAX]) is None:
            return False
    return True
