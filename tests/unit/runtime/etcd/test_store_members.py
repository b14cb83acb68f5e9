"""The store on three real members: one of them, the leader or not, dies or is stopped."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.base.ports import Expect, Put, UnknownResult
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.etcd.store import EtcdStore
from tests.etcd import EtcdCluster, EtcdProcess

pytestmark = pytest.mark.processes

COMMITS_AFTER = 50


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    one = EtcdCluster(tmp_path)
    yield one
    one.stop()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(asyncio.wait_for(test(), 120))


class Counter:
    """Adds to one key, each time from what it last read, and keeps what was acknowledged."""

    def __init__(self, store: EtcdStore) -> None:
        self.store = store
        self.acknowledged: list[int] = []
        """Revisions of the commits that were answered."""
        self.unknown = 0

    async def add(self) -> None:
        try:
            entry = await self.store.get("/n")
            number = int(entry.value) + 1 if entry else 1
            guard = Expect("/n", entry.revision if entry else 0)
            revision = await self.store.commit([guard], [Put("/n", b"%d" % number)])
        except (UnknownResult, TimeoutError, ConnectionError):
            self.unknown += 1
            return
        assert revision is not None, "no other client writes, so its guard holds"
        self.acknowledged.append(revision)


def lose(cluster: EtcdCluster, hurt: Callable[[], object], first: EtcdProcess) -> None:
    """Counts while one member is lost: no acknowledged change may be missing, or be delivered
    twice.
    """

    async def main() -> None:
        urls = [first.url, *(url for url in cluster.urls if url != first.url)]
        store = await EtcdStore.open(EtcdConfig(tuple(urls), prefix="/count", timeout_ms=3_000))
        base, _ = await store.range("/")
        told: list[tuple[int, int]] = []

        async def follow() -> None:
            async for changes in store.watch("/", base):
                assert changes[0].value is not None
                told.append((changes[0].revision, int(changes[0].value)))

        watch = asyncio.create_task(follow())
        counter = Counter(store)
        while len(counter.acknowledged) < COMMITS_AFTER:
            await counter.add()
        hurt()
        while len(counter.acknowledged) < 2 * COMMITS_AFTER:
            await counter.add()
        while not told or told[-1][0] < counter.acknowledged[-1]:
            assert not watch.done()
            await asyncio.sleep(0.01)
        revisions = [revision for revision, _ in told]
        assert [number for _, number in told] == list(range(1, len(told) + 1))
        assert revisions == sorted(set(revisions))
        assert set(counter.acknowledged) <= set(revisions)
        assert len(told) - len(counter.acknowledged) <= counter.unknown
        watch.cancel()
        await asyncio.wait([watch])
        await store.close()

    run(main)


def test_leader_dies_while_it_is_talked_to(cluster: EtcdCluster) -> None:
    leader = cluster.leader()
    lose(cluster, leader.kill, leader)


def test_follower_dies_while_it_is_talked_to(cluster: EtcdCluster) -> None:
    leader = cluster.leader()
    follower = next(member for member in cluster.members if member is not leader)
    lose(cluster, follower.kill, follower)


def test_leader_dies_while_another_is_talked_to(cluster: EtcdCluster) -> None:
    leader = cluster.leader()
    lose(cluster, leader.kill, next(m for m in cluster.members if m is not leader))


def test_leader_is_stopped_and_later_wakes(cluster: EtcdCluster) -> None:
    leader = cluster.leader()
    lose(cluster, leader.pause, leader)
    leader.resume()
    leader.wait_ready()
