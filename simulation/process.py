"""A simulated process: everything that was started inside it, and that stops when it is killed.

A process is a context variable, which tasks and callbacks inherit, beside the host it runs on
(`network.HOST`). `kill` is what `kill -9` is: from that moment the loop runs none of its callbacks
and none of its tasks goes on, not even to clean up. What they were waiting for may still happen;
they do not learn of it. `pause` is SIGSTOP: nothing runs either, but at `resume` everything that
was due meanwhile happens at once.

Killed tasks are kept as they are until the loop ends, so that nothing of them runs by accident
when memory is freed; then they are cancelled, in a world where nothing they touch works any more.
"""

import contextvars
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

from simulation.network import HOST

T = TypeVar("T")

PROCESS: contextvars.ContextVar["SimProcess | None"] = contextvars.ContextVar(
    "simulated_process", default=None
)


class SimProcess:
    """One process on one host; made by `SimLoop.process`."""

    def __init__(self, loop: Any, host: str) -> None:
        self.host = host
        self.is_dead = False
        self.held: list[Any] | None = None
        """What is due and has to wait; None: it is not paused."""
        self.tasks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.context = contextvars.copy_context()
        self.context.run(HOST.set, host)
        self.context.run(PROCESS.set, self)
        self._loop = loop
        self._kept: list[Any] = []

    def start(self, work: Coroutine[Any, Any, T]) -> Any:
        """A task of this process, which answers what `work` does."""
        return self._loop.create_task(work, context=self.context.copy())

    def kill(self) -> None:
        """Nothing of it runs any more. Its connections and files are for the caller to end."""
        if not self.is_dead:
            self.resume()
            self.is_dead = True
            self._kept = [task for _, task in sorted(self.tasks.items())]
            self._loop.has_dead = True

    def pause(self) -> None:
        """Nothing of it runs until `resume`. Packets to it are for the caller to hold back."""
        if not self.is_dead and self.held is None:
            self.held = []
            self._loop.paused[self] = None
            self._loop.has_dead = True

    def resume(self) -> None:
        if self.held is not None:
            held, self.held = self.held, None
            self._loop.paused.pop(self, None)
            self._loop.run_late(held)
