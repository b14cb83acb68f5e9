"""Links: one per cluster and process, kept between tasks, never too many."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from penstock.client.errors import Unreachable
from penstock.spark import connection
from penstock.spark.connection import blocking_client, close_clients
from penstock.spark.settings import ClusterAddress


@pytest.fixture(autouse=True)
def _links_end() -> Iterator[None]:
    yield
    close_clients()


def access(number: int) -> ClusterAddress:
    return ClusterAddress(f"127.0.0.1:{number}", "test", 100)


def test_a_link_is_kept_for_the_next_task() -> None:
    assert blocking_client(access(1)) is blocking_client(access(1))
    assert blocking_client(access(1)) is not blocking_client(access(2))


def test_old_links_are_closed_when_there_are_too_many() -> None:
    first = blocking_client(access(1))
    for number in range(2, connection._CLIENTS_MAX + 2):
        blocking_client(access(number))
    assert len(connection._clients) == connection._CLIENTS_MAX
    assert first.loop.is_closed()


def test_what_was_started_goes_on_while_something_else_is_waited_for() -> None:
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


def test_brokers_that_stay_away_fail_the_call_in_words() -> None:
    made = blocking_client(access(1))
    with pytest.raises(Unreachable, match=r"cannot reach 127\.0\.0\.1:1"):
        made.retry(made.cluster.bootstrap)


def test_what_is_loaded_is_spared_from_collections_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second time would keep the garbage of the tasks between for ever."""
    frozen: list[int] = []
    monkeypatch.setattr(connection, "_frozen_in_process", 0)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    blocking_client(access(1))
    blocking_client(access(2))
    assert frozen == [1]


def test_a_link_remembers_who_coordinates_what() -> None:
    assert blocking_client(access(1)).cluster.coordinators == {}
