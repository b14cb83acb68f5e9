"""Background tasks of one owner; the first error of a task ends the owner."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskSet:
    """Running tasks, in the order of their start."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failed.add_done_callback(_mark_seen)

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if task.cancelled() or self._failed.done():
            return
        error = task.exception()
        if error is not None:
            self._failed.set_exception(error)

    async def failure(self) -> None:
        """Waits until a task fails, and raises its error."""
        await asyncio.shield(self._failed)

    async def finish(self) -> None:
        """Waits until all tasks have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cancel(self) -> None:
        """Cancels all tasks and waits until they have ended."""
        for task in list(self._tasks):
            task.cancel()
        await self.finish()


def _mark_seen(failed: "asyncio.Future[None]") -> None:
    """Keeps asyncio from reporting an error that the owner raises, or that is of no use to it."""
    if not failed.cancelled():
        failed.exception()
