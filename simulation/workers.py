"""Worker threads without threads: the work runs on the loop, after a virtual delay.

Each call waits for a time drawn from the seed, so jobs finish in another order than they were
started, as with real threads. A job itself takes no virtual time and is never torn in the middle:
what a real thread could interleave with it is covered by the disk's own faults.
"""

import asyncio
import random
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class SimWorkers:
    """See `penstock.base.ports.Workers`."""

    def __init__(self, seed: int = 0, *, delay_s: tuple[float, float] = (0.0001, 0.002)) -> None:
        self.delay_s = delay_s
        self._rng = random.Random(seed)

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def finish() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(work(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits
                future.set_exception(error)

        loop.call_later(self._rng.uniform(*self.delay_s), finish)
        return future

    def close(self) -> None:
        """As the real ones have it; there is nothing to end here."""
