"""Thread with an event loop of its own, for synchronous code.

A call from any thread blocks until its coroutine ends. All coroutines run on the one loop, so the
code behind it needs no lock. Interrupting a caller (Ctrl-C) cancels its coroutine.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class LoopThread:
    """Runs coroutines with `run` until `close`."""

    def __init__(self, name: str = "penstock-client") -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Returns the coroutine's result; cancels it after `timeout_s` (TimeoutError)."""
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "the client is closed, or the call comes from its own thread: await there instead"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
        finally:
            self._loop.close()
