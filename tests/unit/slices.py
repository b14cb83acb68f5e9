"""Amount of work at a stretch: calls made in one callback of the loop, not time."""

import sys
from asyncio import Handle
from types import FrameType, TracebackType
from typing import Any


class Slices:
    """While it is entered: `longest` is how many functions were called in one callback at most."""

    def __init__(self) -> None:
        self.longest = 0
        self._calls = 0

    def __enter__(self) -> "Slices":
        sys.setprofile(self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.setprofile(None)
        self.longest = max(self.longest, self._calls)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_call"):
            return
        if frame.f_code is Handle._run.__code__:
            self.longest = max(self.longest, self._calls)
            self._calls = 0
        self._calls += 1
