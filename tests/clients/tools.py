"""What the client tests share: eventual truths, codecs, and tools that must be there."""

import os
import shutil
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
T = TypeVar("T")


def require_tool(name: str, how: str) -> str:
    """The path of a program. In CI its absence is a failure, elsewhere a skip with a reason."""
    path = shutil.which(name)
    if path is not None:
        return path
    reason = f"{name} is not installed: {how}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def eventually(question: Callable[[], T | None], what: str, timeout_s: float = 20.0) -> T:
    """Ask until the answer is true; metadata of a new topic takes a moment on any broker."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.05)
