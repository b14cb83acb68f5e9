"""`SimStore`: faults beyond the contract of stores."""

import asyncio

import pytest

from penstock.base.ports import Put, UnknownResult, WatchLost
from simulation.loop import SimLoop, run
from simulation.network import host_context
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with


def test_change_of_unknown_result_is_applied_never_now_or_later() -> None:
    fates = set()

    async def main(loop: SimLoop) -> None:
        etcd = SimEtcd(loop.seed)
        store = SimStore(etcd)
        etcd.unknown_ratio = 1.0
        with pytest.raises(UnknownResult):
            await store.commit([], [Put("a", b"1")])
        at_once = await store.get("a") is not None
        await asyncio.sleep(60)
        fates.add((at_once, await store.get("a") is not None))

    for seed in range(50):
        run(main, seed)
    assert fates == {(True, True), (False, False), (False, True)}


@run_with(run, 3)
async def test_delayed_watch_keeps_the_order(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    store = SimStore(etcd)
    etcd.watch_delay_s = (1.0, 2.0)
    for i in range(10):
        await store.commit([], [Put("a", b"%d" % i)])
    watch = store.watch("", 0)
    values = [(await anext(watch))[0].value for _ in range(10)]
    assert values == [b"%d" % i for i in range(10)]
    assert 10 <= loop.time() <= 20


@run_with(run)
async def test_watch_behind_a_compaction_is_lost(loop: SimLoop) -> None:
    etcd = SimEtcd(history_max=10)
    store = SimStore(etcd)
    await store.commit([], [Put("a", b"")])
    etcd.compact()
    with pytest.raises(WatchLost):
        await anext(store.watch("", 0))
    for _ in range(20):
        await store.commit([], [Put("a", b"")])
    with pytest.raises(WatchLost):
        await anext(store.watch("", 5))
    assert (await anext(store.watch("", 20)))[0].revision == 21


@run_with(run)
async def test_unavailable_store_does_not_answer(loop: SimLoop) -> None:
    etcd = SimEtcd()
    store = SimStore(etcd)
    etcd.down = True
    with pytest.raises(TimeoutError):
        await store.get("a")
    with pytest.raises(UnknownResult):
        await store.commit([], [Put("a", b"")])
    etcd.down = False
    await asyncio.sleep(60)
    assert await store.get("a") is None


@run_with(run)
async def test_leases_use_the_clock_of_the_store(loop: SimLoop) -> None:
    etcd = SimEtcd()
    store = SimStore(etcd)
    etcd.clock_rate = 3.0
    lease = await store.grant(30_000)
    await store.commit([], [Put("a", b"", lease)])
    await asyncio.sleep(9)
    assert await store.get("a") is not None
    await asyncio.sleep(2)
    assert await store.get("a") is None
    other = await store.grant(1_000_000)
    await store.commit([], [Put("a", b"", other)])
    etcd.expire(other)
    assert await store.get("a") is None


@run_with(run)
async def test_connections_share_the_store_and_close_separately(loop: SimLoop) -> None:
    etcd = SimEtcd()
    one, two = SimStore(etcd), SimStore(etcd)
    await one.commit([], [Put("a", b"1")])
    await one.close()
    entry = await two.get("a")
    assert entry is not None


@run_with(run, 1)
async def test_host_cut_off_from_the_store_gets_no_replies_and_events(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    near, far = SimStore(etcd), host_context("far").run(SimStore, etcd)
    etcd.cut_off["far"] = None
    heard: list[float] = []

    async def listen() -> None:
        async for _ in far.watch("", 0):
            heard.append(loop.time())

    listening = asyncio.ensure_future(listen())
    await near.commit([], [Put("a", b"1")])
    with pytest.raises(TimeoutError):
        await far.get("a")
    with pytest.raises(UnknownResult):
        await far.commit([], [Put("a", b"2")])
    assert heard == []
    etcd.cut_off.clear()
    entry = await far.get("a")
    assert entry is not None
    assert entry.value == b"1"
    await asyncio.sleep(1)
    assert len(heard) == 1
    listening.cancel()
