"""Producer ids: never the same twice, whatever the store answers."""

import asyncio

from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.producer_ids import BLOCK, ProducerIds
from penstock.cluster.metadata.store_keys import ProducerIdsRecord
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with, with_seeds


@run_with(run)
async def test_ids_count_up_and_a_block_costs_one_revision(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    ids = ProducerIds(SimStore(etcd))
    assert [await ids.next() for _ in range(BLOCK)] == list(range(BLOCK))
    assert etcd.space.revision == 1
    assert await ids.next() == BLOCK
    assert etcd.space.revision == 2


@run_with(run)
async def test_next_node_starts_with_the_next_block(loop: SimLoop) -> None:
    store = SimStore(SimEtcd(loop.seed))
    assert await ProducerIds(store).next() == 0
    assert await ProducerIds(store).next() == BLOCK
    entry = await store.get(store_keys.PRODUCER_IDS)
    assert entry is not None
    assert store_keys.decode(ProducerIdsRecord, entry.value).next == 2 * BLOCK


@run_with(run)
async def test_concurrent_requests_share_a_block(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    etcd.delay_s = (0.0, 0.1)
    ids = ProducerIds(SimStore(etcd))
    given = await asyncio.gather(*(ids.next() for _ in range(100)))
    assert sorted(given) == list(range(100))
    assert etcd.space.revision == 1


@run_with(with_seeds, 60, run)
async def test_no_id_is_assigned_twice_when_results_are_unknown(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    etcd.delay_s = (0.0, 0.05)
    etcd.unknown_ratio = 0.3
    given: list[int] = []

    async def node() -> None:
        ids = ProducerIds(SimStore(etcd))
        for _ in range(3):
            given.append(await ids.next())
            ids._next = ids._end  # As if the block were used up.

    await asyncio.gather(*(node() for _ in range(4)))
    blocks = [number // BLOCK for number in given]
    assert len(set(blocks)) == len(blocks) == 12
