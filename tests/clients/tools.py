"""Shared helpers of the client tests: codecs, and required tools."""

import os
import shutil

import pytest

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def require_tool(name: str, how: str) -> str:
    """The path of a program. In CI its absence is a failure, elsewhere a skip with a reason."""
    path = shutil.which(name)
    if path is not None:
        return path
    reason = f"{name} is not installed: {how}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
