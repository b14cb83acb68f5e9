"""Ends of Spark's Python processes, each tried in a process of its own."""

import subprocess
import sys

import pytest

RUN = """
import sys, types
from importlib.machinery import ModuleSpec
import traceback
main = sys.modules["__main__"]
main.__spec__ = ModuleSpec({name!r}, None)
from penstock.spark.worker_exit import end_quietly
end_quietly()
try:
    raise {error}("gone")
except {error}:
    main.traceback.print_exc()
raise {error}("gone")
"""


def errors_of(name: str, error: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(name=name, error=error)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("error", ["BrokenPipeError", "ConnectionResetError"])
def test_closed_connection_is_not_reported_by_processes_of_spark(error: str) -> None:
    assert errors_of("pyspark.daemon", error) == ""


def test_other_errors_and_processes_are_reported() -> None:
    assert errors_of("pyspark.daemon", "ValueError").count("ValueError: gone") == 2
    assert errors_of("users.program", "BrokenPipeError").count("BrokenPipeError: gone") == 2
