"""A deleted topic's record stays until every node has removed its files."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.base.errors import Refused
from penstock.base.ids import TopicId, show_topic_id
from penstock.base.ports import Put, UnknownResult
from penstock.cluster.controller import topic_deletion
from penstock.cluster.controller.placement import initial_record
from penstock.cluster.metadata import store_keys, topics
from penstock.cluster.metadata.store_keys import DeletedRecord, PartitionRecord, TopicRecord
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with

TOPIC = TopicId(bytes([7]) * 16)


def on_store(work: Callable[[SimEtcd, SimStore], Awaitable[None]], seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        etcd = SimEtcd(loop.seed)
        await work(etcd, SimStore(etcd))

    run(main, seed)


async def delete(
    store: SimStore,
    *replicas: int,
    states: dict[int, PartitionRecord] | None = None,
    count: int = 2,
) -> None:
    """A topic born on `replicas`, some partitions changed since, then deleted."""
    record = TopicRecord(show_topic_id(TOPIC), (initial_record(replicas),) * count)
    await store.commit([], [Put(store_keys.topic_key("t"), store_keys.encode(record))])
    for index, state in (states or {}).items():
        await store.commit(
            [], [Put(store_keys.partition_key(TOPIC, index), store_keys.encode(state))]
        )
    await topics.delete_topic(store, "t")


async def note(store: SimStore) -> DeletedRecord | None:
    entry = await store.get(store_keys.deleted_key(TOPIC))
    return store_keys.decode(DeletedRecord, entry.value) if entry else None


async def left(store: SimStore) -> int:
    return len((await store.range(store_keys.partitions_prefix(TOPIC)))[1])


@run_with(on_store)
async def test_last_confirmation_removes_the_deletion_record(
    etcd: SimEtcd, store: SimStore
) -> None:
    await delete(store, 1, 2, states={0: initial_record((1, 2))})
    await topic_deletion.confirm(store, TOPIC, 1)
    found = await note(store)
    assert found is not None
    assert (found.replicas, found.confirmed) == ((1, 2), (1,))
    await topic_deletion.confirm(store, TOPIC, 1)
    assert await note(store) == found
    assert await left(store) == 1
    await topic_deletion.confirm(store, TOPIC, 2)
    assert await note(store) is None
    assert await left(store) == 0
    await topic_deletion.confirm(store, TOPIC, 2)


@run_with(on_store)
async def test_node_without_a_replica_confirms_nothing(etcd: SimEtcd, store: SimStore) -> None:
    await delete(store, 1, 2)
    before = etcd.space.revision
    await topic_deletion.confirm(store, TOPIC, 3)
    assert etcd.space.revision == before


@run_with(on_store)
async def test_nodes_whose_replicas_moved_away_are_not_waited_for(
    etcd: SimEtcd, store: SimStore
) -> None:
    await delete(store, 1, 2, states={0: initial_record((3,)), 1: initial_record((3, 2))})
    found = await note(store)
    assert found is not None
    assert found.replicas == (2, 3)


@run_with(on_store)
async def test_replica_added_during_deletion_is_waited_for(etcd: SimEtcd, store: SimStore) -> None:
    await delete(store, 1)
    late = PartitionRecord(replicas=(1, 4), leader=1, isr=(1,), adding=(4,))
    await store.commit([], [Put(store_keys.partition_key(TOPIC, 0), store_keys.encode(late))])
    await topic_deletion.confirm(store, TOPIC, 1)
    await topic_deletion.finish(store, TOPIC)
    assert await note(store) is not None
    await topic_deletion.confirm(store, TOPIC, 4)
    assert await note(store) is None


@run_with(on_store)
async def test_keys_of_a_large_topic_are_deleted_in_several_transactions(
    etcd: SimEtcd, store: SimStore
) -> None:
    await delete(store, 1, states={index: initial_record((1,)) for index in range(300)}, count=300)
    await topic_deletion.confirm(store, TOPIC, 1)
    assert await left(store) == 0
    assert await note(store) is None


@run_with(on_store)
async def test_record_of_an_earlier_version_ends_with_one_confirmation(
    etcd: SimEtcd, store: SimStore
) -> None:
    old = store_keys.encode(DeletedRecord("t", 1))
    await store.commit([], [Put(store_keys.deleted_key(TOPIC), old)])
    await topic_deletion.confirm(store, TOPIC, 1)
    assert await note(store) is None


@pytest.mark.parametrize("seed", range(20))
@run_with(on_store, fixtures=["seed"])
async def test_concurrent_confirmations_with_unknown_results_complete_the_deletion(
    etcd: SimEtcd, store: SimStore
) -> None:
    await delete(
        store,
        1,
        2,
        3,
        states={index: initial_record((1, 2, 3)) for index in range(200)},
        count=200,
    )
    etcd.unknown_ratio, etcd.timeout_s, etcd.delay_s = 0.4, 0.5, (0.0, 0.05)

    async def remove(node_id: int) -> None:
        while True:
            try:
                await topic_deletion.confirm(SimStore(etcd), TOPIC, node_id)
            except (UnknownResult, Refused):
                continue
            return

    await asyncio.gather(*(remove(node_id) for node_id in (1, 2, 3)))
    await asyncio.sleep(20)  # Late writes have been applied.
    etcd.unknown_ratio = 0.0
    await topic_deletion.finish(store, TOPIC)
    assert await note(store) is None
    assert await left(store) == 0
