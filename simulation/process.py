"""Simulated process: all tasks and callbacks started inside it stop when it is killed.

A process is a context variable, inherited by tasks and callbacks, like the host it runs on
(`network.HOST`). `kill` corresponds to `kill -9`: from then on the loop runs none of its callbacks
and tasks, not even cleanup. Events that they awaited may still happen without notice. `pause`
corresponds to SIGSTOP: nothing runs, and at `resume` everything due meanwhile runs at once.

Killed tasks are kept until the loop ends, so that the garbage collector does not run them by
accident. Then they are cancelled, when none of their ports works any more.
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
    """Process on a host, created by `SimLoop.process`."""

    def __init__(self, loop: Any, host: str) -> None:
        self.host = host
        self.is_dead = False
        self.held: list[Any] | None = None
        """Callbacks due while paused; None: not paused."""
        self.tasks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.context = contextvars.copy_context()
        self.context.run(HOST.set, host)
        self.context.run(PROCESS.set, self)
        self._loop = loop
        self._kept: list[Any] = []

    def start(self, work: Coroutine[Any, Any, T]) -> Any:
        """Starts a task in this process."""
        return self._loop.create_task(work, context=self.context.copy())

    def kill(self) -> None:
        """Kills the process. The caller must close its connections and files."""
        if not self.is_dead:
            self.resume()
            self.is_dead = True
            self._kept = [task for _, task in sorted(self.tasks.items())]
            self._loop.has_halted = True

    def pause(self) -> None:
        """Pauses the process until `resume`. The caller must hold back packets to it."""
        if not self.is_dead and self.held is None:
            self.held = []
            self._loop.paused[self] = None
            self._loop.has_halted = True

    def resume(self) -> None:
        if self.held is not None:
            held, self.held = self.held, None
            self._loop.paused.pop(self, None)
            self._loop.run_held(held)
