"""The store on a real etcd: what a lost connection, a dead member or a compaction does to it.

What every store must do is claimed in `test_store_contract.py`.
"""

import asyncio
import functools
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.base.errors import Corrupt
from penstock.base.ports import Change, Delete, Expect, Put, UnknownResult, WatchLost
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import PartitionRecord, TopicRecord
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.etcd.pool import CONNECTIONS_MAX
from penstock.runtime.etcd.store import EtcdStore
from tests.etcd import EtcdProcess
from tests.proxy import TcpProxy
from tests.run_with import run_with

pytestmark = pytest.mark.processes


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[EtcdProcess]:
    """An etcd of the test's own, that it may kill."""
    process = EtcdProcess(tmp_path / "etcd")
    yield process
    process.stop()


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"/{request.node.name}"


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(asyncio.wait_for(test(), 120))


@asynccontextmanager
async def opened(prefix: str, *urls: str, timeout_ms: int = 5_000) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(EtcdConfig(urls, prefix=prefix, timeout_ms=timeout_ms))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def watching(store: EtcdStore, after: int) -> AsyncIterator[list[Change]]:
    seen: list[Change] = []

    async def follow() -> None:
        async for changes in store.watch("/", after):
            seen.extend(changes)

    task = asyncio.create_task(follow())
    yield seen
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), task


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def _has(seen: list[Change], count: int) -> bool:
    return len(seen) >= count


async def blocking(work: Callable[[], object]) -> None:
    """Off the loop, so that the store under test goes on meanwhile."""
    await asyncio.get_running_loop().run_in_executor(None, work)


# Keys.


@run_with(run)
async def test_clusters_with_their_own_prefix_do_not_see_each_other(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with opened(f"{prefix}/a", etcd.url) as one, opened(f"{prefix}/ab", etcd.url) as two:
        base, _ = await one.range("/")
        await two.commit([Expect("/k", 0)], [Put("/k", b"two")])
        assert await one.get("/k") is None
        await one.commit([Expect("/k", 0)], [Put("/k", b"one")])
        assert [entry.value for entry in (await one.range("/"))[1]] == [b"one"]
        async with watching(one, base) as seen:
            await until(lambda: seen)
            assert [change.value for change in seen] == [b"one"]


@run_with(run)
async def test_watch_delivers_every_change_of_a_burst(*, etcd: EtcdProcess, prefix: str) -> None:
    async with opened(prefix, etcd.url) as store:
        base, _ = await store.range("/")
        value = b"x" * 50_000
        async with watching(store, base) as seen:
            await asyncio.gather(*[store.commit([], [Put(f"/{i}", value)]) for i in range(200)])
            await until(lambda: len(seen) == 200)
            assert [c.revision for c in seen] == [base + 1 + i for i in range(200)]
            assert {c.key for c in seen} == {f"/{i}" for i in range(200)}


# Members that go away.


@run_with(run)
async def test_kill_9_of_etcd_and_its_return_lose_nothing(
    *, mortal: EtcdProcess, prefix: str
) -> None:
    async with opened(prefix, mortal.url) as store:
        base, _ = await store.range("/")
        async with watching(store, base) as seen:
            assert await store.commit([], [Put("/a", b"1")]) == base + 1
            lease = await store.grant(60_000)
            await store.commit([], [Put("/b", b"", lease)])
            await until(lambda: len(seen) == 2)
            await blocking(mortal.kill)
            await blocking(mortal.start)
            entry = await store.get("/a")
            assert entry is not None
            assert entry.revision == base + 1
            assert await store.renew(lease)
            assert await store.commit([Expect("/a", base + 1)], [Put("/a", b"2")]) == base + 3
            await until(lambda: len(seen) == 3)
            assert [c.revision for c in seen] == [base + 1, base + 2, base + 3]


@run_with(run)
async def test_changes_during_a_broken_watch_are_delivered_after(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with TcpProxy(etcd.port) as proxy, opened(prefix, proxy.url) as store:
        base, _ = await store.range("/")
        async with watching(store, base) as seen:
            await store.commit([], [Put("/a", b"1")])
            await until(lambda: len(seen) == 1)
            proxy.accepts = False
            proxy.cut()
            etcd.put(f"{prefix}/a", b"2")
            etcd.put(f"{prefix}/a", b"3")
            await asyncio.sleep(0.2)
            assert len(seen) == 1
            proxy.accepts = True
            await until(lambda: len(seen) == 3)
            assert [change.value for change in seen] == [b"1", b"2", b"3"]


@run_with(run)
async def test_member_that_falls_silent_is_left_by_reads_and_watches(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with (
        TcpProxy(etcd.port) as first,
        TcpProxy(etcd.port) as second,
        opened(prefix, first.url, second.url) as store,
    ):
        base, _ = await store.range("/")
        async with watching(store, base) as seen:
            await store.commit([], [Put("/a", b"1")])
            await until(lambda: len(seen) == 1)
            assert second.accepted == 0
            first.passes_requests = first.passes_answers = False
            etcd.put(f"{prefix}/a", b"2")
            await until(lambda: len(seen) == 2)  # The watch itself finds out.
            entry = await store.get("/a")
            assert entry is not None
            assert entry.value == b"2"
            assert second.accepted > 0


@run_with(run)
async def test_dead_endpoint_is_passed_over(*, etcd: EtcdProcess, prefix: str) -> None:
    async with TcpProxy(etcd.port) as gone:
        pass
    async with opened(prefix, gone.url, etcd.url) as store:
        assert await store.commit([], [Put("/a", b"1")]) is not None


@run_with(run)
async def test_unreachable_endpoints_are_all_reported_at_once(*, etcd: EtcdProcess) -> None:
    async with TcpProxy(etcd.port) as one, TcpProxy(etcd.port) as two:
        two.accepts = False
    with pytest.raises(ConnectionError) as refused:
        await EtcdStore.open(EtcdConfig((one.url, two.url)))
    assert one.url in str(refused.value)
    assert two.url in str(refused.value)
    assert "refused" in str(refused.value)


# Commits without a clear answer.


@run_with(run)
async def test_commit_whose_answer_is_lost_is_unknown_and_done_once(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with TcpProxy(etcd.port) as proxy, opened(prefix, proxy.url) as store:
        base, _ = await store.range("/")
        proxy.passes_answers = False
        commit = asyncio.create_task(store.commit([], [Put("/a", b"1")]))
        async with opened(prefix, etcd.url) as other:
            while await other.get("/a") is None:
                await asyncio.sleep(0.01)
            proxy.passes_answers = True
            proxy.cut()
            with pytest.raises(UnknownResult, match=proxy.url):
                await commit
            entry = await store.get("/a")
            assert entry is not None
            assert entry.revision == base + 1
            assert (await store.range("/"))[0] == base + 1, "it was not sent again"


@run_with(run)
async def test_commit_that_was_lost_on_its_way_is_unknown_and_not_done(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with TcpProxy(etcd.port) as proxy, opened(prefix, proxy.url) as store:
        proxy.passes_requests = False
        commit = asyncio.create_task(store.commit([], [Put("/a", b"1")]))
        await until(lambda: b"/v3/kv/txn" in proxy.swallowed)
        proxy.passes_requests = True
        proxy.cut()
        with pytest.raises(UnknownResult):
            await commit
        assert await store.get("/a") is None


@run_with(run)
async def test_commit_to_a_stopped_etcd_is_unknown_and_all_is_well_when_it_wakes(
    *, mortal: EtcdProcess, prefix: str
) -> None:
    async with opened(prefix, mortal.url, timeout_ms=500) as store:
        await store.get("/a")
        mortal.pause()
        with pytest.raises(UnknownResult, match="did not respond"):
            await store.commit([], [Put("/a", b"1")])
        with pytest.raises((TimeoutError, ConnectionError)):
            await store.get("/a")
        mortal.resume()
        assert await store.commit([], [Put("/b", b"")]) is not None
        entry = await store.get("/a")  # It may have been in the kernel's hands all the time.
        assert entry is None or entry.value == b"1"


@run_with(run)
async def test_commit_that_cannot_be_sent_is_certainly_not_done(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with (
        TcpProxy(etcd.port) as proxy,
        opened(prefix, proxy.url, timeout_ms=300) as store,
    ):
        proxy.accepts = False
        proxy.cut()
        await asyncio.sleep(0.05)  # The cut has been noticed.
        with pytest.raises(ConnectionError):
            await store.commit([], [Put("/a", b"1")])
        proxy.accepts = True
        assert await store.get("/a") is None


@run_with(run)
async def test_cancelled_commit_gives_its_connection_back(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with TcpProxy(etcd.port) as proxy, opened(prefix, proxy.url) as store:
        proxy.passes_answers = False
        commits = [
            asyncio.create_task(store.commit([], [Put(f"/{i}", b"")]))
            for i in range(3 * CONNECTIONS_MAX)
        ]
        await asyncio.sleep(0.1)
        for commit in commits:
            commit.cancel()
        await asyncio.wait(commits)
        proxy.passes_answers = True
        assert await store.commit([], [Put("/last", b"")]) is not None


# Bounds.


@run_with(run)
async def test_burst_uses_a_bounded_number_of_connections_and_leases_need_not_wait(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with TcpProxy(etcd.port) as proxy, opened(prefix, proxy.url) as store:
        lease = await store.grant(60_000)
        commits = [asyncio.create_task(store.commit([], [Put(f"/{i}", b"")])) for i in range(1_000)]
        await asyncio.sleep(0)
        assert await store.renew(lease)
        assert sum(commit.done() for commit in commits) < 500
        await asyncio.gather(*commits)
        assert proxy.open_max <= CONNECTIONS_MAX + 1
        await store.revoke(lease)


@run_with(run)
async def test_closing_fails_requests_in_progress(*, etcd: EtcdProcess, prefix: str) -> None:
    async with TcpProxy(etcd.port) as proxy, opened(prefix, proxy.url) as store:
        proxy.passes_answers = False
        commit = asyncio.create_task(store.commit([], [Put("/a", b"")]))
        read = asyncio.create_task(store.get("/a"))
        await asyncio.sleep(0.05)
        await store.close()
        with pytest.raises(UnknownResult):
            await commit
        with pytest.raises(ConnectionError):
            await read


# Compaction.


@run_with(run)
async def test_watch_that_fell_behind_a_compaction_is_lost(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with opened(prefix, etcd.url) as store:
        base, _ = await store.range("/")
        for value in (b"1", b"2", b"3"):
            await store.commit([], [Put("/a", value)])
        etcd.compact()
        with pytest.raises(WatchLost, match="compacted"):
            async for _ in store.watch("/", base):
                pass


@run_with(run)
async def test_watch_that_keeps_up_does_not_notice_compactions(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with opened(prefix, etcd.url) as store:
        base, _ = await store.range("/")
        async with watching(store, base) as seen:
            for i in range(20):
                await store.commit([], [Put("/a", b"%d" % i)])
                await until(lambda: len(seen) > i)  # noqa: B023
                etcd.compact()
            assert [int(change.value or b"") for change in seen] == list(range(20))


def test_watch_of_idle_keys_survives_compaction(tmp_path: Path, prefix: str) -> None:
    etcd = EtcdProcess(tmp_path / "etcd", ["--watch-progress-notify-interval=100ms"])

    async def main() -> None:
        async with TcpProxy(etcd.port) as proxy, opened(prefix, proxy.url) as store:
            base, _ = await store.range("/")
            async with watching(store, base) as seen:
                await asyncio.sleep(0.1)
                for _ in range(5):
                    etcd.put("/other", b"")
                told = proxy.answered_bytes
                await until(lambda: proxy.answered_bytes > told + 500)  # It says so now and then.
                proxy.accepts = False
                proxy.cut()
                etcd.compact()
                proxy.accepts = True
                await store.commit([], [Put("/a", b"1")])
                await until(lambda: seen)
                assert seen[0].value == b"1"

    try:
        run(main)
    finally:
        etcd.stop()


@run_with(run)
async def test_follower_has_the_whole_image_after_a_compaction_it_slept_through(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with (
        TcpProxy(etcd.port) as proxy,
        opened(prefix, proxy.url) as store,
        opened(prefix, etcd.url) as other,
    ):
        follower = MetadataWatcher(store)
        await follower.start()
        task = asyncio.create_task(follower.run())
        proxy.accepts = False
        proxy.cut()
        revision = None
        for number in range(20):
            record = TopicRecord(
                id=f"AAAAAAAAAAAAAAAAAAA{chr(65 + number)}AA",
                partitions=(PartitionRecord((1,), 1, (1,)),),
            )
            put = Put(store_keys.topic_key(f"t{number}"), store_keys.encode(record))
            revision = await other.commit([], [put])
        assert revision is not None
        etcd.compact()
        proxy.accepts = True
        await follower.reached(revision)
        assert len(follower.image.topics) == 20
        task.cancel()
        await asyncio.wait([task])


# An etcd that is not the one it was.


@run_with(run)
async def test_etcd_that_lost_its_data_is_not_believed(*, mortal: EtcdProcess, prefix: str) -> None:
    async with opened(prefix, mortal.url) as store:
        for i in range(5):
            await store.commit([], [Put("/a", b"%d" % i)])
        mortal.kill()
        shutil.rmtree(mortal.data_dir)
        mortal.start()
        with pytest.raises(Corrupt, match="it lost data"):
            await store.get("/a")


@pytest.mark.parametrize("is_idle", [True, False])
@run_with(run)
async def test_restored_etcd_is_noticed_by_a_watch(
    *, mortal: EtcdProcess, prefix: str, tmp_path: Path, is_idle: bool
) -> None:
    async with opened(prefix, mortal.url) as store:
        await store.commit([], [Put("/a", b"1")])
        mortal.stop()
        shutil.copytree(mortal.data_dir, tmp_path / "backup")
        mortal.start()
        after, _ = await store.range("/")
        watch = store.watch("/", after)
        last = mortal.put(f"{prefix}/late", b"1")
        assert [change.key for change in await anext(watch)] == ["/late"]
        mortal.stop()
        shutil.rmtree(mortal.data_dir)
        shutil.copytree(tmp_path / "backup", mortal.data_dir)
        mortal.start()
        if not is_idle:  # Then its revision is the same as before.
            assert mortal.put(f"{prefix}/other", b"") == last
        with pytest.raises(Corrupt, match="restored from an older backup"):
            await anext(watch)


@run_with(run)
async def test_resumed_watch_delivers_no_change_again(*, etcd: EtcdProcess, prefix: str) -> None:
    async with (
        TcpProxy(etcd.port) as proxy,
        opened(prefix, proxy.url) as store,
        opened(prefix, etcd.url) as other,
    ):
        after, _ = await store.range("/")
        async with watching(store, after) as seen:
            for number in range(3):
                # A deletion at a compacted revision is not told again.
                await other.commit([], [Put("/a", b"%d" % number), Put("/b", b"")])
                await other.commit([], [Delete("/b")])
                told = 3 * (number + 1)
                await until(functools.partial(_has, seen, told))
                proxy.accepts = False
                proxy.cut()
                if number == 1:
                    etcd.compact()
                proxy.accepts = True
            await other.commit([], [Put("/c", b"")])
            await until(lambda: seen[-1].key == "/c")
        assert [change.key for change in seen] == ["/a", "/b", "/b"] * 3 + ["/c"]


@run_with(run)
async def test_endpoints_of_two_clusters_are_not_mixed(
    *, etcd: EtcdProcess, mortal: EtcdProcess, prefix: str
) -> None:
    async with TcpProxy(mortal.port) as proxy, opened(prefix, proxy.url, etcd.url) as store:
        await store.get("/a")
        proxy.accepts = False
        proxy.cut()
        etcd.put("/other", b"")  # So that its revision alone does not reveal it.
        with pytest.raises(Corrupt, match="different clusters"):
            await store.get("/a")


# Leases.


@run_with(run)
async def test_lease_counts_in_whole_seconds_and_never_shorter_than_asked(
    *, etcd: EtcdProcess, prefix: str
) -> None:
    async with opened(prefix, etcd.url) as store:
        lease = await store.grant(6_001)
        told = etcd.ask("/v3/lease/timetolive", ID=str(lease))
        assert told["grantedTTL"] == "7"
        await store.revoke(lease)
