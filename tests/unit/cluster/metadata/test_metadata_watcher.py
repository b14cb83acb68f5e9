"""Following the store: in order, to the end, and past every interruption."""

import asyncio
from contextlib import suppress

from penstock.base.ports import Put
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import ConfigsRecord
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with


async def write(store: SimStore, number: int) -> int:
    record = ConfigsRecord({"n": str(number)})
    revision = await store.commit([], [Put(store_keys.CLUSTER_CONFIGS, store_keys.encode(record))])
    assert revision is not None
    return revision


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@run_with(run)
async def test_image_is_complete_after_start(loop: SimLoop) -> None:
    store = SimStore(SimEtcd(loop.seed))
    revision = await write(store, 1)
    watcher = MetadataWatcher(store)
    image = await watcher.start()
    assert image.revision == revision
    assert image.cluster_configs == {"n": "1"}
    await watcher.reached(revision)


@run_with(run)
async def test_empty_store_gives_an_empty_image(loop: SimLoop) -> None:
    watcher = MetadataWatcher(SimStore(SimEtcd(loop.seed)))
    assert (await watcher.start()).topics == {}
    await watcher.reached(0)


@run_with(run)
async def test_images_are_delivered_in_order_with_their_predecessor(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    etcd.watch_delay_s = (0.0, 0.5)
    store = SimStore(etcd)
    watcher = MetadataWatcher(store)
    await watcher.start()
    told: list[tuple[Image, Image]] = []
    watcher.on_change(lambda before, after: told.append((before, after)))
    task = asyncio.ensure_future(watcher.run())
    revision = 0
    for number in range(10):
        revision = await write(store, number)
    await watcher.reached(revision)
    assert [after.cluster_configs["n"] for _, after in told] == [str(n) for n in range(10)]
    assert all(told[i][1] is told[i + 1][0] for i in range(9))
    await ended(task)


@run_with(run)
async def test_waiters_are_woken_after_the_callbacks(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    etcd.watch_delay_s = (1.0, 1.0)
    store = SimStore(etcd)
    watcher = MetadataWatcher(store)
    await watcher.start()
    seen: list[str] = []
    watcher.on_change(lambda before, after: seen.append("callback"))
    task = asyncio.ensure_future(watcher.run())
    first, second = await write(store, 1), await write(store, 2)

    async def wait(revision: int) -> None:
        await watcher.reached(revision)
        assert watcher.image.revision >= revision
        seen.append(f"waiter {revision}")

    late = asyncio.ensure_future(wait(second))
    gone = asyncio.ensure_future(wait(first))
    await asyncio.sleep(0)
    gone.cancel()
    await late
    assert seen == ["callback", "callback", f"waiter {second}"]
    await ended(task)


@run_with(run)
async def test_lost_watch_is_recovered_by_reading_everything(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    etcd.watch_delay_s = (5.0, 5.0)
    store = SimStore(etcd)
    watcher = MetadataWatcher(store)
    await watcher.start()
    told: list[Image] = []
    watcher.on_change(lambda before, after: told.append(after))
    task = asyncio.ensure_future(watcher.run())
    revision = 0
    for number in range(5):
        revision = await write(store, number)
    etcd.compact()
    await watcher.reached(revision)
    assert watcher.image.cluster_configs == {"n": "4"}
    assert len(told) == 1
    after = await write(store, 9)
    await watcher.reached(after)
    assert watcher.image.cluster_configs == {"n": "9"}
    await ended(task)


@run_with(run)
async def test_store_that_is_down_is_retried(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    etcd.watch_delay_s = (5.0, 5.0)
    store = SimStore(etcd)
    watcher = MetadataWatcher(store)
    await watcher.start()
    task = asyncio.ensure_future(watcher.run())
    revision = await write(store, 1)
    etcd.compact()
    etcd.down = True
    await asyncio.sleep(60)
    assert not task.done()
    etcd.down = False
    await watcher.reached(revision)
    await ended(task)
