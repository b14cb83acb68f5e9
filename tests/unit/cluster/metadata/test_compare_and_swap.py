"""Compare-and-swap: once, or not at all, or a clear refusal."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Delete, Put, StoreEntry
from penstock.cluster.metadata.compare_and_swap import swap
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with, with_seeds


def increment(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
    entry = entries[0]
    return [Put("/n", str(int(entry.value) + 1 if entry else 1).encode())]


@run_with(run)
async def test_change_returns_its_revision(loop: SimLoop) -> None:
    store = SimStore(SimEtcd(loop.seed))
    assert await swap(store, ["/n"], increment) == 1
    assert await swap(store, ["/n"], increment) == 2
    assert await swap(store, ["/n"], lambda entries: []) == 2
    assert await swap(store, ["/m"], lambda entries: []) == 0


@run_with(with_seeds, 10, run)
async def test_concurrent_increments_are_all_applied(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    etcd.delay_s = (0.0, 0.01)
    await asyncio.gather(*(swap(SimStore(etcd), ["/n"], increment) for _ in range(5)))
    entry = await SimStore(etcd).get("/n")
    assert entry is not None
    assert entry.value == b"5"


@run_with(with_seeds, 40, run)
async def test_unknown_result_is_looked_up_and_not_applied_twice(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    etcd.unknown_ratio = 0.6
    store = SimStore(etcd)

    def append(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        return [Put("/n", (entry.value if entry else b"") + b"x")]

    for done in range(1, 6):
        revision = await swap(store, ["/n"], append)
        entry = await store.get("/n")
        assert entry is not None
        assert entry.revision == revision
        assert entry.value == b"x" * done


@run_with(with_seeds, 40, run)
async def test_delete_with_an_unknown_result_is_recognized_as_done(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    store = SimStore(etcd)
    await store.commit([], [Put("/a", b"1")])
    etcd.unknown_ratio = 0.6

    def move(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        if entries[0] is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [Delete("/a"), Put("/b", b"1")]

    await swap(store, ["/a"], move)
    assert await store.get("/a") is None
    assert await store.get("/b") is not None


@run_with(run)
async def test_refusal_changes_nothing(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)

    def refuse(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        raise Refused(ErrorCode.POLICY_VIOLATION)

    with pytest.raises(Refused):
        await swap(SimStore(etcd), ["/n"], refuse)
    assert etcd.space.revision == 0


@run_with(run)
async def test_store_that_never_answers_ends_in_a_timeout(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    etcd.down = True
    with pytest.raises(Refused) as refused:
        await swap(SimStore(etcd), ["/n"], increment)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
