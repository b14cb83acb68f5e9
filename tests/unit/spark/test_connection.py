"""Blocking clients: one per cluster and process, reused between tasks, limited in number."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from penstock.client.errors import Unreachable
from penstock.spark import connection
from penstock.spark.connection import blocking_client, close_clients
from penstock.spark.settings import ClusterAddress


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    close_clients()


def access(number: int) -> ClusterAddress:
    return ClusterAddress(f"127.0.0.1:{number}", "test", 100)


def test_client_is_reused_by_the_next_task() -> None:
    assert blocking_client(access(1)) is blocking_client(access(1))
    assert blocking_client(access(1)) is not blocking_client(access(2))


def test_oldest_client_is_closed_beyond_the_limit() -> None:
    first = blocking_client(access(1))
    for number in range(2, connection._CLIENTS_MAX + 2):
        blocking_client(access(number))
    assert len(connection._clients) == connection._CLIENTS_MAX
    assert first.loop.is_closed()


def test_started_task_continues_during_the_next_call() -> None:
    made = blocking_client(access(1))
    steps: list[int] = []

    async def work() -> int:
        steps.append(1)
        await asyncio.sleep(0.01)
        steps.append(2)
        return 3

    task = made.start(work())
    assert steps == [1]
    assert made.finish(task) == 3
    assert steps == [1, 2]


def test_unreachable_brokers_fail_the_call() -> None:
    made = blocking_client(access(1))
    with pytest.raises(Unreachable, match=r"cannot reach 127\.0\.0\.1:1"):
        made.retry(made.cluster.bootstrap)


def test_loaded_modules_are_frozen_once_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second freeze would keep the garbage of earlier tasks for ever."""
    frozen: list[int] = []
    monkeypatch.setattr(connection, "_frozen_in_process", 0)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    blocking_client(access(1))
    blocking_client(access(2))
    assert frozen == [1]


def test_client_caches_coordinators() -> None:
    assert blocking_client(access(1)).cluster.coordinators == {}
