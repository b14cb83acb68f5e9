"""Claims about dedup stores: one contract, every store, each the real thing."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.app.dedup import DedupStore, DedupVerdict, MemoryDedup
from penstock.app.dedup_stores import PostgresDedup, RedisDedup, SqlDedup, SqliteDedup
from simulation.clock import SimClock
from tests.postgres import PostgresProcess
from tests.redis_server import RedisProcess

KINDS = ("memory", "sqlite", "postgres", "redis")
Make = Callable[[str, str], DedupStore]
"""Scope and ttl of a claim to a store."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresProcess]:
    process = PostgresProcess()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisProcess]:
    process = RedisProcess()
    yield process
    process.stop()


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes stores that share what they know, except in memory, where there is only one."""
    made: list[SqliteDedup | PostgresDedup | RedisDedup] = []
    memory: dict[str, MemoryDedup] = {}
    test = request.node.name

    def new(scope: str, claim_ttl: str = "5m") -> DedupStore:
        scope = f"{test}/{scope}"
        store: SqliteDedup | PostgresDedup | RedisDedup
        if request.param == "memory":
            return memory.setdefault(scope, MemoryDedup(claim_ttl=claim_ttl))
        if request.param == "sqlite":
            store = SqliteDedup(str(tmp_path / "seen.db"), scope=scope, claim_ttl=claim_ttl)
        elif request.param == "postgres":
            conninfo = request.getfixturevalue("postgres").conninfo
            store = PostgresDedup(conninfo, scope=scope, claim_ttl=claim_ttl)
        else:
            url = request.getfixturevalue("redis").url
            store = RedisDedup(url, scope=scope, claim_ttl=claim_ttl)
        made.append(store)
        return store

    yield new
    for store in made:
        store.close()


def test_an_id_is_new_then_busy_then_done(make: Make) -> None:
    one, other = make("a", "5m"), make("a", "5m")
    assert one.begin("m", "one") is DedupVerdict.NEW
    assert other.begin("m", "other") is DedupVerdict.BUSY
    one.finish("m", "one")
    assert other.begin("m", "other") is DedupVerdict.DONE
    assert one.begin("m", "one") is DedupVerdict.DONE
    assert other.begin("another", "other") is DedupVerdict.NEW


def test_what_is_given_up_may_be_tried_again_but_only_its_owner_gives_it_up(make: Make) -> None:
    store = make("a", "5m")
    store.begin("m", "one")
    store.forget("m", "other")
    assert store.begin("m", "other") is DedupVerdict.BUSY
    store.forget("m", "one")
    assert store.begin("m", "other") is DedupVerdict.NEW
    store.finish("m", "other")
    store.forget("m", "other")
    assert store.begin("m", "one") is DedupVerdict.DONE, "done stays done"


def test_scopes_do_not_see_each_other(make: Make) -> None:
    one, other = make("a", "5m"), make("b", "5m")
    one.begin("m", "x")
    one.finish("m", "x")
    assert other.begin("m", "x") is DedupVerdict.NEW


def test_a_claim_whose_owner_died_ends_by_itself(make: Make) -> None:
    store = make("a", "50ms")
    assert store.begin("m", "dead") is DedupVerdict.NEW
    deadline = time.monotonic() + 30
    while store.begin("m", "heir") is DedupVerdict.BUSY:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    store.finish("m", "dead")
    assert store.begin("m", "heir") is DedupVerdict.DONE, "it was handled, late or not"


def test_of_many_at_once_exactly_one_gets_an_id(make: Make) -> None:
    stores = [make("race", "5m") for _ in range(4)]
    start, got = threading.Barrier(4), Counter[str]()
    mutex = threading.Lock()

    def claim(number: int) -> None:
        start.wait()
        for message in range(40):
            if stores[number].begin(f"m-{message}", f"worker-{number}") is DedupVerdict.NEW:
                with mutex:
                    got[f"m-{message}"] += 1

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == Counter({f"m-{message}": 1 for message in range(40)})


def test_ids_end_by_the_clock_and_are_removed(tmp_path: Path, postgres: PostgresProcess) -> None:
    clock = SimClock()
    stores: list[SqlDedup] = [
        SqliteDedup(str(tmp_path / "seen.db"), ttl="1h", clock=clock),
        PostgresDedup(postgres.conninfo, scope="ends", ttl="1h", clock=clock),
    ]
    for store in stores:
        store.begin("m", "a")
        store.finish("m", "a")
    clock.jump(3_599_999)
    assert [store.begin("m", "b") for store in stores] == [DedupVerdict.DONE] * 2
    clock.jump(1)
    for store in stores:
        store.purge()
        assert (
            store._execute("SELECT id FROM penstock_dedup WHERE scope = ?", (store._scope,)) == []
        )
        assert store.begin("m", "b") is DedupVerdict.NEW
        assert isinstance(store, SqliteDedup | PostgresDedup)
        store.close()


def test_postgres_mends_a_connection_that_was_cut(postgres: PostgresProcess) -> None:
    store = PostgresDedup(postgres.conninfo, scope="cut")
    other = PostgresDedup(postgres.conninfo, scope="cut")
    assert store.begin("m", "a") is DedupVerdict.NEW
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()"
    other._execute(cut + " AND backend_type = 'client backend'", ())
    assert store.begin("m", "b") is DedupVerdict.BUSY
    store.finish("m", "a")
    assert store.begin("m", "b") is DedupVerdict.DONE
    for one in (store, other):
        one.close()


def test_a_claim_whose_answer_was_lost_is_still_its_owners(make: Make) -> None:
    """Asking again with the same token is what a mended connection does."""
    store = make("a", "5m")
    if isinstance(store, MemoryDedup):
        return
    assert store.begin("m", "one") is DedupVerdict.NEW
    assert store.begin("m", "one") is DedupVerdict.NEW
    assert store.begin("m", "other") is DedupVerdict.BUSY


def test_a_client_that_was_brought_along_is_left_open(redis: RedisProcess) -> None:
    from redis import Redis

    client = Redis.from_url(redis.url, decode_responses=True)
    store = RedisDedup(client, scope="own")
    assert store.begin("m", "a") is DedupVerdict.NEW
    store.finish("m", "a")
    assert store.begin("m", "a") is DedupVerdict.DONE
    store.close()
    assert client.ping()
    client.close()
