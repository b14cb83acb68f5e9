"""Idempotent handlers, and the memory store."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.app.dedup import Busy, DedupVerdict, MemoryDedup, idempotent, message_id_of
from penstock.app.dedup_stores import SqliteDedup
from simulation.clock import SimClock


def message(message_id: str = "m-1", offset: int = 0) -> Any:
    headers = {"message_id": message_id.encode()}
    return SimpleNamespace(topic="t", partition=0, offset=offset, headers=headers)


def test_plain_handler_runs_once_per_message() -> None:
    seen: list[int] = []

    @idempotent(MemoryDedup())
    def handle(one: Any, factor: int = 1) -> int:
        """Docstring."""
        seen.append(one.offset)
        return factor * int(one.offset)

    assert handle(message("a", 5), factor=2) == 10
    assert handle(message("a", 6)) is None
    assert handle(message("b", 7)) == 7
    assert seen == [5, 7]
    assert (handle.__name__, handle.__doc__) == ("handle", "Docstring.")


def test_asyncio_handler_runs_once_per_message(tmp_path: Any) -> None:
    store = SqliteDedup(str(tmp_path / "seen.db"))
    seen: list[int] = []

    @idempotent(store)
    async def handle(one: Any) -> int:
        await asyncio.sleep(0)
        seen.append(one.offset)
        return int(one.offset)

    async def main() -> list[int | None]:
        return [await handle(message("a", 5)), await handle(message("a", 6))]

    assert asyncio.run(main()) == [5, None]
    assert seen == [5]
    store.close()


def test_failed_handler_runs_again() -> None:
    attempts: list[int] = []

    @idempotent(MemoryDedup())
    def handle(one: Any) -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("not yet")
        return "done"

    with pytest.raises(ValueError, match="not yet"):
        handle(message())
    assert handle(message()) == "done"
    assert handle(message()) is None


def test_message_in_progress_raises_busy() -> None:
    store = MemoryDedup()

    @idempotent(store)
    async def handle(one: Any) -> None:
        await asyncio.sleep(1_000)

    async def main() -> None:
        first = asyncio.create_task(handle(message()))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="m-1"):
            await handle(message())
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(main())
    assert store.begin("m-1", "next") is DedupVerdict.NEW, "who was cancelled holds nothing"


def test_cancelled_claim_is_released() -> None:
    """A slow store makes the claim after its caller was cancelled."""
    may_go, inner = threading.Event(), MemoryDedup()

    class Slow:
        is_blocking = True

        def begin(self, message_id: str, token: str) -> DedupVerdict:
            may_go.wait(10)
            return inner.begin(message_id, token)

        def finish(self, message_id: str, token: str) -> None:
            inner.finish(message_id, token)

        def forget(self, message_id: str, token: str) -> None:
            inner.forget(message_id, token)

    @idempotent(Slow())
    async def handle(one: Any) -> None:
        raise AssertionError("it was cancelled before")

    async def main() -> None:
        asking = asyncio.create_task(handle(message()))
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.sleep(0)
        may_go.set()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(main())
    assert inner.begin("m-1", "next") is DedupVerdict.NEW


def test_custom_key_defines_the_id() -> None:
    seen: list[int] = []

    @idempotent(MemoryDedup(), key=lambda one: f"{one.topic}/{one.offset // 10}")
    def handle(one: Any) -> None:
        seen.append(one.offset)

    for offset in (1, 2, 11, 12):
        handle(message(f"m-{offset}", offset))
    assert seen == [1, 11]


def test_id_comes_from_headers_or_offset() -> None:
    place: dict[str, Any] = {"topic": "t", "partition": 2, "offset": 7}
    assert message_id_of(SimpleNamespace(headers={"message_id": b"x"}, **place)) == "x"
    pairs = (("penstock-dedup-id", b"y"), ("other", None))
    assert message_id_of(SimpleNamespace(headers=pairs, **place)) == "y"
    assert message_id_of(SimpleNamespace(headers={"message_id": "text"}, **place)) == "text"
    assert message_id_of(SimpleNamespace(headers=(), **place)) == "t-2-7"


def test_memory_store_is_bounded_and_counts_evictions() -> None:
    store = MemoryDedup(entries_max=3)
    for number in range(3):
        store.begin(str(number), "a")
        store.finish(str(number), "a")
    assert store.begin("0", "b") is DedupVerdict.DONE  # Used, so it stays longer than 1.
    assert store.begin("3", "b") is DedupVerdict.NEW
    assert (len(store), store.forgotten_early) == (3, 1)
    assert store.begin("0", "b") is DedupVerdict.DONE
    assert store.begin("1", "b") is DedupVerdict.NEW
    with pytest.raises(ValueError, match="entries_max"):
        MemoryDedup(entries_max=0)


def test_memory_store_expires_ids() -> None:
    clock = SimClock()
    store = MemoryDedup(ttl="1h", claim_ttl="1m", clock=clock)
    assert store.begin("x", "a") is DedupVerdict.NEW
    clock.jump(59_999)
    assert store.begin("x", "b") is DedupVerdict.BUSY
    clock.jump(1)
    assert store.begin("x", "b") is DedupVerdict.NEW, "the first one must have died"
    store.finish("x", "b")
    clock.jump(3_599_999)
    assert store.begin("x", "c") is DedupVerdict.DONE
    clock.jump(1)
    assert store.begin("x", "c") is DedupVerdict.NEW
