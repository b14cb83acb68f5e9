"""Waiting for what other processes do: asked until it is so, with an end.

Who waits too long raises TimeoutError, never AssertionError: `second_chance` knows the one from
the other.
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
    """Asks until the answer is true, and answers it; `explain` tells more when time is up."""
    deadline = time.monotonic() + timeout_s
    while not (answer := question()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}\n{explain()}".strip())
        time.sleep(PAUSE_S)
    return answer
