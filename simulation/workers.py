"""Simulated worker threads: jobs run on the loop after a virtual delay.

The delay is drawn from the seed, so jobs finish in another order than they were started, as with
real threads. A job takes no virtual time and is atomic: faults of the simulated disk cover the
interleavings of a real thread.
"""

import asyncio
import random
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class SimWorkers:
    """Implements `penstock.base.ports.Workers`."""

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
            except BaseException as error:  # noqa: BLE001 - raised in the awaiting task
                future.set_exception(error)

        loop.call_later(self._rng.uniform(*self.delay_s), finish)
        return future

    def close(self) -> None:
        """Does nothing: there are no threads to end."""
