"""The contract of `penstock.base.ports.Store`, run against every implementation.

What is claimed here is etcd's behaviour; the embedded and the simulated store must not differ in
anything a caller can see. Revisions are counted from `base_of`: etcd's do not begin at 0.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.base.ports import COMMIT_CHANGES_MAX, Change, Delete, Expect, Put, Store, StoreEntry
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.etcd.store import EtcdStore
from penstock.runtime.sqlite_store import SqliteStore
from simulation.loop import SimLoop
from simulation.store import SimEtcd, SimStore
from tests.etcd import EtcdProcess
from tests.run_with import run_with

pytestmark = pytest.mark.processes

Scenario = Callable[[Store], Coroutine[Any, Any, None]]
Check = Callable[[Scenario], None]


def _on_sqlite(path: Path) -> Check:
    async def main(scenario: Scenario) -> None:
        store = await SqliteStore.open(f"{path}/metadata.db")
        try:
            await scenario(store)
        finally:
            await store.close()

    return lambda scenario: asyncio.run(main(scenario))


def _on_simulation(seed: int, delay_s: tuple[float, float]) -> Check:
    async def main(scenario: Scenario) -> None:
        etcd = SimEtcd(seed)
        etcd.delay_s = etcd.watch_delay_s = delay_s
        store = SimStore(etcd)
        await scenario(store)
        await store.close()
        etcd.close()

    return lambda scenario: SimLoop(seed, time_max=3600).run(main(scenario))


def _on_etcd(etcd: EtcdProcess, prefix: str) -> Check:
    async def main(scenario: Scenario) -> None:
        store = await EtcdStore.open(EtcdConfig((etcd.url,), prefix=prefix))
        try:
            await scenario(store)
        finally:
            await store.close()

    return lambda scenario: uvloop.run(main(scenario))


@pytest.fixture(params=["sqlite", "simulation", "slow simulation", "etcd"])
def check(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Check]:
    if request.param == "sqlite":
        yield _on_sqlite(tmp_path)
    elif request.param == "etcd":
        etcd: EtcdProcess = request.getfixturevalue("etcd")
        yield _on_etcd(etcd, f"/contract/{request.node.name}")
        etcd.end_leases()  # None of them may end, and take a revision, in a later test.
    else:
        slow = request.param.startswith("slow")
        yield _on_simulation(7, (0.001, 0.05) if slow else (0.0, 0.0))


def on_store(scenario: Scenario, check: Check) -> None:
    check(scenario)


async def base_of(store: Store) -> int:
    """The revision before the test's first."""
    return (await store.range("/"))[0]


@asynccontextmanager
async def watching(store: Store, prefix: str, after: int) -> AsyncIterator[list[list[Change]]]:
    """Changes that a watch has seen so far, growing while the block runs."""
    seen: list[list[Change]] = []

    async def follow() -> None:
        async for changes in store.watch(prefix, after):
            seen.append(changes)

    task = asyncio.create_task(follow())
    yield seen
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), task


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@run_with(on_store, fixtures=["check"])
async def test_put_is_read_back_with_its_revision(store: Store) -> None:
    assert await store.get("/a") is None
    first = await store.commit([], [Put("/a", b"1")])
    second = await store.commit([], [Put("/a", b"2"), Put("/b", b"")])
    assert first is not None
    assert second == first + 1
    assert await store.get("/a") == StoreEntry("/a", b"2", second)
    assert await store.get("/b") == StoreEntry("/b", b"", second)


@run_with(on_store, fixtures=["check"])
async def test_range_is_sorted_and_ends_with_its_prefix(store: Store) -> None:
    base = await base_of(store)
    for key in ("/t/b", "/t", "/t/a", "/t/\U0001f600", "/s/z", "/u"):
        await store.commit([], [Put(key, key.encode())])
    revision, entries = await store.range("/t/")
    assert [entry.key for entry in entries] == ["/t/a", "/t/b", "/t/\U0001f600"]
    assert revision == base + 6
    assert len((await store.range("/"))[1]) == 6
    assert await store.range("/none") == (revision, [])


@run_with(on_store, fixtures=["check"])
async def test_guard_holds_only_for_the_revision_last_seen(store: Store) -> None:
    created = await store.commit([Expect("/a", 0)], [Put("/a", b"1")])
    assert created is not None
    assert await store.commit([Expect("/a", 0)], [Put("/a", b"2")]) is None
    changed = await store.commit([Expect("/a", created)], [Put("/a", b"3")])
    assert changed == created + 1
    assert await store.commit([Expect("/a", created)], [Put("/a", b"4")]) is None
    assert (await store.range("/"))[0] == changed, "a refused transaction takes no revision"


@run_with(on_store, fixtures=["check"])
async def test_all_changes_happen_or_none(store: Store) -> None:
    first = await store.commit([], [Put("/a", b"1"), Put("/b", b"1")])
    assert first is not None
    guards = [Expect("/a", first), Expect("/c", first)]
    changes: list[Put | Delete] = [Put("/a", b"2"), Delete("/b")]
    assert await store.commit(guards, changes) is None
    assert await store.get("/a") == StoreEntry("/a", b"1", first)
    assert await store.commit([Expect("/a", first)], changes) == first + 1
    assert await store.get("/b") is None


@run_with(on_store, fixtures=["check"])
async def test_commit_without_changes_takes_no_revision(store: Store) -> None:
    first = await store.commit([], [Put("/a", b"1")])
    assert first is not None
    assert await store.commit([], [Delete("/none")]) == first
    assert await store.commit([Expect("/a", first)], []) == first
    assert await store.commit([Expect("/a", first + 1)], []) is None
    assert await store.commit([], [Put("/a", b"1")]) == first + 1, "the same value does"


@run_with(on_store, fixtures=["check"])
async def test_deleted_key_starts_again_from_nothing(store: Store) -> None:
    first = await store.commit([], [Put("/a", b"1")])
    assert first is not None
    assert await store.commit([Expect("/a", first)], [Delete("/a")]) == first + 1
    assert await store.commit([Expect("/a", first)], [Put("/a", b"2")]) is None
    assert await store.commit([Expect("/a", 0)], [Put("/a", b"2")]) == first + 2


@run_with(on_store, fixtures=["check"])
async def test_concurrent_compare_and_swap_loses_no_increment(store: Store) -> None:
    async def increment() -> int:
        tries = 0
        while True:
            tries += 1
            entry = await store.get("/n")
            value = int(entry.value) if entry else 0
            guard = Expect("/n", entry.revision if entry else 0)
            if await store.commit([guard], [Put("/n", b"%d" % (value + 1))]) is not None:
                return tries

    base = await base_of(store)
    tries = await asyncio.gather(*[increment() for _ in range(20)])
    entry = await store.get("/n")
    assert entry is not None
    assert (entry.value, entry.revision) == (b"20", base + 20)
    assert sum(tries) > 20, "they did get in each other's way"


@run_with(on_store, fixtures=["check"])
async def test_watch_sees_every_change_of_its_prefix_one_list_per_revision(store: Store) -> None:
    base = await base_of(store)
    await store.commit([], [Put("/t/old", b"0")])
    async with watching(store, "/t/", base) as seen:
        await store.commit([], [Put("/t/a", b"1"), Put("/t/b", b"1"), Put("/u", b"1")])
        await store.commit([], [Put("/u", b"2")])
        await store.commit([], [Delete("/t/a")])
        await until(lambda: len(seen) == 3)
        assert seen == [
            [Change("/t/old", b"0", base + 1)],
            [Change("/t/a", b"1", base + 2), Change("/t/b", b"1", base + 2)],
            [Change("/t/a", None, base + 4)],
        ]


@run_with(on_store, fixtures=["check"])
async def test_range_and_a_watch_from_its_revision_miss_nothing(store: Store) -> None:
    async def write() -> None:
        for i in range(100):
            await store.commit([], [Put(f"/k{i % 10}", b"%d" % i)])

    base = await base_of(store)
    writer = asyncio.create_task(write())
    await until(lambda: True)
    await asyncio.sleep(0.01)
    revision, entries = await store.range("/k")
    state = {entry.key: entry.value for entry in entries}
    async with watching(store, "/k", revision) as seen:
        await writer
        last = (await store.range("/k"))[0]
        assert last == base + 100
        await until(lambda: revision == last or (seen and seen[-1][0].revision == last))
        for changes in seen:
            for change in changes:
                assert change.value is not None
                state[change.key] = change.value
    assert state == {f"/k{i % 10}": b"%d" % i for i in range(90, 100)}


@run_with(on_store, fixtures=["check"])
async def test_range_is_whole_however_many_keys_there_are(store: Store) -> None:
    keys = [f"/many/{i:05d}" for i in range(2_500)]
    for start in range(0, len(keys), COMMIT_CHANGES_MAX):
        part = keys[start : start + COMMIT_CHANGES_MAX]
        await store.commit([Expect(key, 0) for key in part], [Put(key, b"v") for key in part])
    await store.commit([], [Put("/many0", b"not below"), Put("/man", b"nor this")])
    revision, entries = await store.range("/many/")
    assert [entry.key for entry in entries] == keys
    assert revision == await base_of(store)


@run_with(on_store, fixtures=["check"])
async def test_more_than_etcd_takes_in_a_commit_is_our_bug(store: Store) -> None:
    base = await base_of(store)
    too_many: list[Put | Delete] = [Put(f"/{i}", b"") for i in range(COMMIT_CHANGES_MAX + 1)]
    twice: list[Put | Delete] = [Put("/a", b""), Delete("/a")]
    for wrong in (too_many, twice):
        with pytest.raises(AssertionError):
            await store.commit([], wrong)
    assert await store.range("/") == (base, [])


@run_with(on_store, fixtures=["check"])
async def test_any_bytes_are_kept_as_they_are(store: Store) -> None:
    value = bytes(range(256)) * 400
    base = await base_of(store)
    await store.commit([], [Put("/bytes", value)])
    entry = await store.get("/bytes")
    assert entry is not None
    assert entry.value == value
    async with watching(store, "/", base) as seen:
        await until(lambda: seen)
        assert seen[0][0].value == value


@run_with(on_store, fixtures=["check"])
async def test_watches_are_independent(store: Store) -> None:
    base = await base_of(store)
    async with watching(store, "/", base) as kept:
        async with watching(store, "/", base) as gone:
            await store.commit([], [Put("/a", b"1")])
            await until(lambda: gone and kept)
        await store.commit([], [Put("/a", b"2")])
        await until(lambda: len(kept) == 2)
        assert len(gone) == 1


@run_with(on_store, fixtures=["check"])
async def test_keys_vanish_at_one_revision_when_their_lease_is_not_renewed(store: Store) -> None:
    lease = await store.grant(150)
    puts = [Put("/b/1", b"", lease), Put("/b/2", b"", lease), Put("/c", b"")]
    put = await store.commit([], puts)
    assert put is not None
    entry = await store.get("/b/1")
    assert entry is not None
    assert entry.lease == lease
    async with watching(store, "/", put) as seen:
        await until(lambda: seen)
        assert seen == [[Change("/b/1", None, put + 1), Change("/b/2", None, put + 1)]]
    assert not await store.renew(lease)
    assert await store.get("/c") is not None


@run_with(on_store, fixtures=["check"])
async def test_renewed_lease_keeps_its_keys(store: Store) -> None:
    lease, short = await store.grant(2000), await store.grant(300)
    await store.commit([], [Put("/kept", b"", lease), Put("/gone", b"", short)])
    while await store.get("/gone") is not None:
        assert await store.renew(lease)
        await asyncio.sleep(0.05)
    assert await store.get("/kept") is not None


@run_with(on_store, fixtures=["check"])
async def test_lease_revocation_deletes_its_keys_and_is_idempotent(store: Store) -> None:
    lease, other = await store.grant(60_000), await store.grant(60_000)
    assert lease != other
    await store.commit([], [Put("/a", b"", lease), Put("/b", b"", other)])
    await store.revoke(lease)
    await store.revoke(lease)
    assert await store.get("/a") is None
    assert await store.get("/b") is not None
    assert not await store.renew(lease)
    assert await store.renew(other)


@run_with(on_store, fixtures=["check"])
async def test_put_with_a_lease_that_ended_fails_like_a_guard(store: Store) -> None:
    lease = await store.grant(60_000)
    await store.revoke(lease)
    assert await store.commit([], [Put("/a", b"", lease), Put("/b", b"")]) is None
    assert (await store.range("/"))[1] == []


@run_with(on_store, fixtures=["check"])
async def test_put_without_the_lease_takes_the_key_off_it(store: Store) -> None:
    lease, other = await store.grant(60_000), await store.grant(60_000)
    await store.commit([], [Put("/a", b"", lease), Put("/b", b"", lease)])
    await store.commit([], [Put("/a", b"mine"), Put("/b", b"", other)])
    await store.revoke(lease)
    assert await store.get("/a") is not None
    assert await store.get("/b") is not None
    await store.revoke(other)
    assert await store.get("/b") is None


@run_with(on_store, fixtures=["check"])
async def test_closing_ends_the_watches(store: Store) -> None:
    base = await base_of(store)

    async def follow() -> None:
        async for _ in store.watch("/", base):
            pass

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.01)
    await store.close()
    await task


@run_with(on_store, fixtures=["check"])
async def test_cancelled_caller_does_not_stop_the_change(store: Store) -> None:
    async with watching(store, "/", await base_of(store)) as seen:
        task = asyncio.create_task(_commit_soon(store))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await store.commit([], [Put("/b", b"")])
        await until(lambda: seen and seen[-1][0].key == "/b")
        entry = await store.get("/a")
        assert (entry is not None) == (len(seen) == 2), "what is read and watched agrees"


async def _commit_soon(store: Store) -> None:
    await store.commit([], [Put("/a", b"")])
