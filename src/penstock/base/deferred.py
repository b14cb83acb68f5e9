"""Deferred coroutine calls: the coroutine is created when it is awaited.

A coroutine that is created but never awaited causes a RuntimeWarning. So work that is passed to a
task which may be cancelled before it awaits the work is deferred.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """Awaitable that may be awaited once, or never."""

    __slots__ = ("_args", "_work")

    def __init__(self, work: Callable[..., Awaitable[T]], *args: Any) -> None:
        self._work = work
        self._args = args

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work(*self._args).__await__()


def drop(work: object) -> None:
    """Closes work that will not be awaited, if it is a coroutine that has not begun."""
    close = getattr(work, "close", None)
    if close is not None:
        close()
