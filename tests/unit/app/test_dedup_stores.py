"""Dedup stores: one contract, tested on every real store."""

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
    """Creates stores that share their ids; for the memory store, always the same one."""
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


def test_id_is_new_then_busy_then_done(make: Make) -> None:
    one, other = make("a", "5m"), make("a", "5m")
    assert one.begin("m", "one") is DedupVerdict.NEW
    assert other.begin("m", "other") is DedupVerdict.BUSY
    one.finish("m", "one")
    assert other.begin("m", "other") is DedupVerdict.DONE
    assert one.begin("m", "one") is DedupVerdict.DONE
    assert other.begin("another", "other") is DedupVerdict.NEW


def test_released_id_may_be_claimed_again_and_only_its_owner_releases_it(make: Make) -> None:
    store = make("a", "5m")
    store.begin("m", "one")
    store.forget("m", "other")
    assert store.begin("m", "other") is DedupVerdict.BUSY
    store.forget("m", "one")
    assert store.begin("m", "other") is DedupVerdict.NEW
    store.finish("m", "other")
    store.forget("m", "other")
    assert store.begin("m", "one") is DedupVerdict.DONE, "done stays done"


def test_scopes_are_independent(make: Make) -> None:
    one, other = make("a", "5m"), make("b", "5m")
    one.begin("m", "x")
    one.finish("m", "x")
    assert other.begin("m", "x") is DedupVerdict.NEW


def test_claim_of_dead_owner_expires(make: Make) -> None:
    store = make("a", "50ms")
    assert store.begin("m", "dead") is DedupVerdict.NEW
    deadline = time.monotonic() + 30
    while store.begin("m", "heir") is DedupVerdict.BUSY:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    store.finish("m", "dead")
    assert store.begin("m", "heir") is DedupVerdict.DONE, "it was handled, late or not"


def test_exactly_one_concurrent_caller_claims_an_id(make: Make) -> None:
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


def test_expired_ids_are_purged(tmp_path: Path, postgres: PostgresProcess) -> None:
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


def test_postgres_store_reconnects(postgres: PostgresProcess) -> None:
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


def test_repeated_claim_with_same_token_succeeds(make: Make) -> None:
    """A store that reconnects repeats the call with the same token."""
    store = make("a", "5m")
    if isinstance(store, MemoryDedup):
        return
    assert store.begin("m", "one") is DedupVerdict.NEW
    assert store.begin("m", "one") is DedupVerdict.NEW
    assert store.begin("m", "other") is DedupVerdict.BUSY


def test_callers_redis_client_is_left_open(redis: RedisProcess) -> None:
    from redis import Redis

    client = Redis.from_url(redis.url, decode_responses=True)
    store = RedisDedup(client, scope="own")
    assert store.begin("m", "a") is DedupVerdict.NEW
    store.finish("m", "a")
    assert store.begin("m", "a") is DedupVerdict.DONE
    store.close()
    assert client.ping()
    client.close()
