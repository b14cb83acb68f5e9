"""Waiting for conditions in other processes: polled until true, with a limit.

A timeout raises TimeoutError, never AssertionError: `second_chance` distinguishes the two.
"""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 60.0
PAUSE_S = 0.02

T = TypeVar("T")


def eventually(
    question: Callable[[], T | None],
    what: str,
    timeout_s: float = PATIENCE_S,
    *,
    explain: Callable[[], object] = str,
) -> T:
    """Polls until the answer is true, and returns it; `explain` adds details to the timeout."""
    deadline = time.monotonic() + timeout_s
    while not (answer := question()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}\n{explain()}".strip())
        time.sleep(PAUSE_S)
    return answer
