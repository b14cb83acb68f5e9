"""Work that begins when somebody awaits it.

A coroutine that was made and is never awaited leaves a RuntimeWarning: so one that is handed on to
somebody who may be cancelled before he comes to it is not made before that.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """To be awaited once, or never."""

    __slots__ = ("_args", "_work")

    def __init__(self, work: Callable[..., Awaitable[T]], *args: Any) -> None:
        self._work = work
        self._args = args

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work(*self._args).__await__()


def drop(work: object) -> None:
    """Ends work that nobody is going to await, if it is a coroutine that has not begun."""
    close = getattr(work, "close", None)
    if close is not None:
        close()
