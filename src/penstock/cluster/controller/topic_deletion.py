"""Completion of a topic's deletion: its record stays until every node has removed its files.

Deleting a topic removes its name and leaves `/deleted/<id>` with the nodes that had replicas. Each
of them removes its files and confirms; a node that is down confirms when it returns, for the record
waits for it. When all have confirmed, the keys of the partitions are deleted, then the record. A
node that will not return is confirmed for when it is unregistered.

Invariants: a record is deleted only after every node has confirmed that it names, or that a
partition's key names: a move may have added one while the topic was being deleted. The keys are
deleted first, in transactions within the limit, each guarded by the record. After a crash in
between, the next node that confirms, or the controller, continues.
Elsewhere: the files (`log_directories`), the time to remove them (`partitions`).
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
    """Confirms that `node_id` has no files of the topic any more. Raises the store's errors."""
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
            # The last confirmation need not be written first.
            if await _clear(store, entry, states):
                return
        elif await store.commit(
            [Expect(key, entry.revision)], [Put(key, store_keys.encode(record))]
        ):
            return
    reason = "the record of the deleted topic kept changing"
    raise Refused(ErrorCode.REQUEST_TIMED_OUT, reason)


async def finish(store: Store, topic_id: TopicId) -> None:
    """Deletes the record if all nodes have confirmed; else leaves it unchanged."""
    entry = await store.get(store_keys.deleted_key(topic_id))
    if entry is None:
        return
    record = store_keys.decode(DeletedRecord, entry.value)
    states = await _states(store, topic_id)
    if _is_complete(_needed(record, states), record):
        await _clear(store, entry, states)


async def read_states(store: Store, name: str) -> dict[tuple[str, int], PartitionRecord]:
    """Partitions of a topic that have changed since its creation, by topic id and partition.

    Only spares nodes that gave their replicas away long ago: without it (the store does not answer
    just now) the nodes where the topic was created must confirm, too.
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
    """Nodes with a replica of these partitions."""
    return tuple(sorted({node for record in partitions for node in record.replicas}))


async def _states(store: Store, topic_id: TopicId) -> list[StoreEntry]:
    _, entries = await store.range(store_keys.partitions_prefix(topic_id))
    return entries


def _needed(record: DeletedRecord, states: Sequence[StoreEntry]) -> list[int]:
    """Nodes that must confirm: those that the record names, and those that a key names."""
    named = replicas_of(store_keys.decode(PartitionRecord, entry.value) for entry in states)
    return [*record.replicas, *(node for node in named if node not in record.replicas)]


def _is_complete(needed: Sequence[int], record: DeletedRecord) -> bool:
    return all(node in record.confirmed for node in needed)


async def _clear(store: Store, deleted: StoreEntry, states: Sequence[StoreEntry]) -> bool:
    """Deletes all keys under the topic's id, the record last; False if the record changed."""
    guard = [Expect(deleted.key, deleted.revision)]
    gone = [*(Delete(entry.key) for entry in states), Delete(deleted.key)]
    for start in range(0, len(gone), COMMIT_CHANGES_MAX):
        if await store.commit(guard, gone[start : start + COMMIT_CHANGES_MAX]) is None:
            return False
    return True
