"""Deterministic event loop with virtual time: seeded, repeatable, as fast as its callbacks.

When no callback is ready, the clock jumps to the next timer; the loop never sleeps. Ready callbacks
run first in, first out, as asyncio promises; randomness is in delays (network, workers, timers).
`shuffle=True` breaks that promise on purpose, to find code that depends on the order.

- No ready callback and no timer: `SimDeadlock`, which lists what every task awaits.
- `time_max` and `callbacks_max` limit endless runs: `SimOverrun`.
- `trace` is a hash over every step and every delivered byte: equal seeds give equal hashes.
- Tasks and futures hash by a counter, so sets of them iterate the same way in every run.
- The network is `loop.net` (`network`); `create_server` and `create_connection` use it.
- `process(host)` creates a process that can be killed or paused (`process`).
- There are no threads: `run_in_executor` raises; use `Workers`.
"""

import asyncio
import hashlib
import heapq
import itertools
import random
import struct
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from simulation.network import SimNet, SimServer
from simulation.process import PROCESS, SimProcess
from simulation.transport import SimTransport

T = TypeVar("T")


class SimDeadlock(Exception):
    """All tasks wait, and no callback or timer is left."""


class SimOverrun(Exception):
    """The run exceeded its limit of virtual time or callbacks."""


class SimFuture(asyncio.Future[T]):
    def __init__(self, number: int, loop: "SimLoop") -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimTask(asyncio.Task[T]):
    def __init__(self, number: int, coro: Coroutine[Any, Any, T], **options: Any) -> None:
        self._number = number  # Set first: the constructor adds the task to a set.
        super().__init__(coro, name=f"task-{number}", **options)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    _ready: Any  # asyncio's internal queues, which its type stubs lack.
    _scheduled: list[Any]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(
        self,
        seed: int = 0,
        *,
        shuffle: bool = False,
        time_max: float = float("inf"),
        callbacks_max: int = 100_000_000,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.rng = random.Random(seed)
        self.net = SimNet(self, self.rng)
        self.callbacks = 0
        self.has_halted = False
        """True while a process is dead or paused."""
        self.paused: dict[SimProcess, None] = {}
        self.after_callback: Callable[[], None] | None = None
        """Hook called after each callback, for checkers."""
        self._skipped: list[Any] = []
        self._trace = hashlib.blake2b(digest_size=16)
        self._now = 0.0
        self._shuffle = shuffle
        self._time_max = time_max
        self._callbacks_max = callbacks_max
        self._numbers = itertools.count(1)
        make_task: Any = self._make_task
        self.set_task_factory(make_task)

    @property
    def trace(self) -> str:
        return self._trace.hexdigest()

    def note(self, *what: int) -> None:
        """Adds numbers to the trace."""
        self._trace.update(struct.pack(f"<{len(what)}q", *what))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs `main` to its end, cancels remaining tasks, and closes the loop."""
        try:
            return self.run_until_complete(main)
        finally:
            self._cancel_rest()
            self.close()

    def process(self, host: str) -> SimProcess:
        return SimProcess(self, host)

    # Interface to asyncio.

    def time(self) -> float:
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(next(self._numbers), self)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> NoReturn:
        raise RuntimeError("no threads in simulation: use Workers (base.ports)")

    async def create_server(self, *args: Any, **options: Any) -> SimServer:  # type: ignore[override]
        return self.net.listen(*args, **options)

    async def create_connection(  # type: ignore[override]
        self, *args: Any, **options: Any
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        return await self.net.connect(*args, **options)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], **options: Any
    ) -> SimTask[T]:
        context = options.get("context")
        owner = PROCESS.get() if context is None else context.get(PROCESS, None)
        task = SimTask(next(self._numbers), coro, loop=loop, **options)
        if owner is not None:
            owner.tasks[task._number] = task
        return task

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _run_once(self) -> None:
        ready = self._ready
        if not ready and not self._stopping:
            self._advance()
        self._collect_timers()
        if self._shuffle and len(ready) > 1:
            handles = list(ready)
            self.rng.shuffle(handles)
            ready.clear()
            ready.extend(handles)
        count = len(ready)
        self._trace.update(struct.pack("<dq", self._now, count))
        for _ in range(count):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            if self.has_halted and self._is_held_back(handle):
                continue
            handle._run()
            if self.after_callback is not None:
                self.after_callback()
        self.callbacks += count
        if self.callbacks > self._callbacks_max or self._now > self._time_max:
            raise SimOverrun(f"{self.callbacks} callbacks, {self._now} s\n{self._waiting()}")

    def _is_held_back(self, handle: Any) -> bool:
        """True if the callback belongs to a dead or paused process; keeps it if needed later."""
        process = handle._context.get(PROCESS, None)
        if process is None or not (process.is_dead or process.held is not None):
            return False
        if process.held is not None:
            process.held.append(handle)
        elif not isinstance(handle, asyncio.TimerHandle):
            self._skipped.append(
                handle
            )  # Kept, because its task could not be cancelled without it.
        return True

    def run_held(self, handles: list[Any]) -> None:
        """Runs the callbacks of a resumed process."""
        self._ready.extend(handles)

    # Time.

    def _advance(self) -> None:
        """Advances the clock to the next timer that is not cancelled."""
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._pop_timer()
        if not scheduled:
            raise SimDeadlock(f"at {self._now} s, seed {self.seed}\n{self._waiting()}")
        self._now = max(self._now, scheduled[0]._when)

    def _collect_timers(self) -> None:
        scheduled = self._scheduled
        if self._timer_cancelled_count > 100 and self._timer_cancelled_count * 2 > len(scheduled):
            self._drop_cancelled()
        while scheduled and scheduled[0]._when <= self._now:
            handle = self._pop_timer()
            if not handle._cancelled:
                self._ready.append(handle)

    def _pop_timer(self) -> Any:
        handle = heapq.heappop(self._scheduled)
        handle._scheduled = False
        if handle._cancelled:
            self._timer_cancelled_count -= 1
        return handle

    def _drop_cancelled(self) -> None:
        for handle in self._scheduled:
            handle._scheduled = not handle._cancelled
        self._scheduled[:] = [handle for handle in self._scheduled if not handle._cancelled]
        heapq.heapify(self._scheduled)
        self._timer_cancelled_count = 0

    # The end.

    def _tasks(self) -> list[SimTask[Any]]:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
        return sorted(tasks, key=lambda task: task._number)

    def _waiting(self) -> str:
        lines = []
        for task in self._tasks():
            coro: Any = task.get_coro()
            while getattr(coro, "cr_await", None) is not None and hasattr(coro, "cr_frame"):
                inner = coro.cr_await
                if not hasattr(inner, "cr_frame"):
                    break
                coro = inner
            frame = getattr(coro, "cr_frame", None)
            where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "?"
            lines.append(f"  {task.get_name()} {getattr(coro, '__qualname__', coro)} at {where}")
        return "\n".join(lines)

    def _cancel_rest(self) -> None:
        """Cancels all tasks; one that does not end is left to the garbage collector."""
        self._callbacks_max, self._time_max = self.callbacks + 100_000, float("inf")
        for process in tuple(self.paused):
            process.resume()
        self.has_halted = False  # Tasks of killed processes must end, too.
        self._ready.extend(self._skipped)
        self._skipped.clear()
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.run_until_complete(self.shutdown_asyncgens())
        except (SimDeadlock, SimOverrun):
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]


def run(
    main: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int = 0, **options: Any
) -> tuple[T, SimLoop]:
    """Runs `main(loop)` on a new loop; returns its result, and the loop for its trace."""
    loop = SimLoop(seed, **options)
    return loop.run(main(loop)), loop
