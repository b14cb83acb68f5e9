"""`penstock.runtime.etcd.channel`: choice of the endpoint, and errors for refusals."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Put, UnknownResult
from penstock.runtime.etcd import pool
from penstock.runtime.etcd.config import EtcdConfig, parse_endpoint
from penstock.runtime.etcd.http import EtcdConnection
from penstock.runtime.etcd.pool import EtcdRefused
from penstock.runtime.etcd.store import EtcdStore
from tests.etcd_gateway import FakeEtcdGateway
from tests.run_with import run_with

UNAVAILABLE, EXHAUSTED, DENIED, INVALID = 14, 8, 7, 3


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


async def open_store(*urls: str, timeout_ms: int = 5_000) -> EtcdStore:
    return await EtcdStore.open(EtcdConfig(urls, timeout_ms=timeout_ms))


# Versions.


@pytest.mark.parametrize("version", ["3.4.23", "3.5.0", "3.5.2", "3.5.21", "2.3.8"])
@run_with(run)
async def test_etcd_with_known_consistency_bugs_is_refused(*, version: str) -> None:
    async with FakeEtcdGateway(version) as etcd:
        with pytest.raises(ConnectionError) as refused:
            await open_store(etcd.url)
        told = str(refused.value)
        assert f"{etcd.url} is etcd {version}; 3.6 or newer is required" in told
        assert etcd.asked == ["/version"], "nothing else was asked of it"


@pytest.mark.parametrize("version", ["3.6.0", "3.6.16", "3.7.0-rc.0", "3.10.1", "4.0.0"])
@run_with(run)
async def test_newer_etcd_is_taken(*, version: str) -> None:
    async with FakeEtcdGateway(version) as etcd:
        await (await open_store(etcd.url)).close()


@run_with(run)
async def test_old_member_is_passed_over_for_a_new_one() -> None:
    async with FakeEtcdGateway("3.5.2") as old, FakeEtcdGateway() as new:
        store = await open_store(old.url, new.url)
        assert await store.commit([], [Put("/a", b"")]) == 7
        assert old.asked == ["/version"]
        await store.close()


@pytest.mark.parametrize(
    "answer",
    [
        (404, b"<html>not here</html>"),
        (200, b"<html>a proxy's page</html>"),
        (200, {"etcdserver": "unknown"}),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
    ids=["404", "page", "no version", "ssh", "tls", "endless head"],
)
@run_with(run)
async def test_server_that_is_not_etcd_is_refused_by_name(*, answer: Any) -> None:
    async with FakeEtcdGateway() as other:
        other.answers["/version"] = answer
        with pytest.raises(ConnectionError, match=other.url):
            await open_store(other.url, timeout_ms=1_000)


# Refusals and failures.


@run_with(run)
async def test_read_is_asked_again_when_etcd_is_between_leaders() -> None:
    async with FakeEtcdGateway() as etcd:
        store = await open_store(etcd.url)
        etcd.fail("/v3/kv/range", UNAVAILABLE, "etcdserver: leader changed", times=3)
        assert await store.get("/a") is None
        await store.close()


@run_with(run)
async def test_commit_etcd_gave_up_on_is_unknown_and_not_sent_again() -> None:
    async with FakeEtcdGateway() as etcd:
        store = await open_store(etcd.url)
        for code, message in (
            (UNAVAILABLE, "etcdserver: request timed out"),
            (2, "something new"),
            (13, "internal"),
        ):
            etcd.fail("/v3/kv/txn", code, message)
            with pytest.raises(UnknownResult, match=message):
                await store.commit([], [Put("/a", b"")])
        assert etcd.asked.count("/v3/kv/txn") == 3
        await store.close()


@pytest.mark.parametrize(
    ("code", "message", "advice"),
    [
        (EXHAUSTED, "etcdserver: mvcc: database space exceeded", "defragment"),
        (DENIED, "etcdserver: permission denied", "grant"),
        (INVALID, "etcdserver: user name is empty", "user and a password"),
        (INVALID, "etcdserver: too many operations in txn request", "--max-txn-ops"),
    ],
)
@run_with(run)
async def test_clear_refusal_is_not_an_unknown_result_and_has_advice(
    *, code: int, message: str, advice: str
) -> None:
    async with FakeEtcdGateway() as etcd:
        store = await open_store(etcd.url)
        etcd.fail("/v3/kv/txn", code, message)
        with pytest.raises(EtcdRefused) as refused:
            await store.commit([], [Put("/a", b"")])
        for part in (etcd.url, message, advice):
            assert part in str(refused.value)
        await store.close()


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"no json"),
        (200, {"succeeded": True}),
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"",
    ],
    ids=["text", "no header", "cut short", "silence"],
)
@run_with(run)
async def test_commit_without_a_readable_answer_is_unknown(*, answer: Any) -> None:
    async with FakeEtcdGateway() as etcd:
        store = await open_store(etcd.url, timeout_ms=200)
        etcd.answers["/v3/kv/txn"] = answer
        with pytest.raises(UnknownResult, match=etcd.url):
            await store.commit([], [Put("/a", b"")])
        await store.close()


# Endpoints and connections.


@run_with(run)
async def test_member_that_failed_is_left_and_the_next_one_kept() -> None:
    async with FakeEtcdGateway() as one, FakeEtcdGateway() as two:
        store = await open_store(one.url, two.url)
        one.fail("/v3/kv/range", UNAVAILABLE, "etcdserver: no leader", times=100)
        for _ in range(3):
            assert await store.get("/a") is None
        assert one.asked.count("/v3/kv/range") == 2, "once at start, once until it failed"
        assert two.asked.count("/v3/kv/range") == 3
        await store.close()


@run_with(run)
async def test_unanswered_read_times_out_with_the_reason() -> None:
    async with FakeEtcdGateway() as etcd:
        store = await open_store(etcd.url, timeout_ms=300)
        etcd.fail("/v3/kv/range", UNAVAILABLE, "etcdserver: no leader", times=10_000)
        with pytest.raises(ConnectionError, match="no leader"):
            await store.get("/a")
        await store.close()


@run_with(run)
async def test_deadline_during_a_connect_keeps_the_earlier_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        endpoint = parse_endpoint(url)
        a_pool = pool.Pool(EtcdConfig((url,)), no_preparation)
        a_pool.leave(endpoint, ConnectionError(f"{endpoint} failed: no leader"))
        with pytest.raises(ConnectionError, match="failed: no leader"):
            await a_pool.connect(pool.now_s())
        a_pool.close()


async def no_preparation(connection: EtcdConnection) -> None:
    pass


@run_with(run)
async def test_connection_the_server_will_close_is_not_used_again() -> None:
    async with FakeEtcdGateway() as etcd:
        store = await open_store(etcd.url)
        body = b'{"header": {"revision": "7", "cluster_id": "1"}}'
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        etcd.answers["/v3/kv/range"] = head + body
        asked = etcd.asked.count("/version")
        await store.get("/a")
        await store.get("/a")
        assert etcd.asked.count("/version") == asked + 1, "the second on a new connection"
        await store.close()


@run_with(run)
async def test_waiting_requests_are_bounded() -> None:
    async with FakeEtcdGateway() as etcd:
        store = await open_store(etcd.url)
        etcd.answers["/v3/kv/range"] = b""
        reads = [
            asyncio.create_task(store.get("/a"))
            for _ in range(pool.CONNECTIONS_MAX + pool.WAITING_MAX)
        ]
        await asyncio.sleep(0.01)
        with pytest.raises(Refused) as refused:
            await store.get("/a")
        assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        for read in reads:
            read.cancel()
        await asyncio.wait(reads)
        await store.close()
