"""Reruns after timeouts: pytest runs tests that fail in every way."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.second_chance import is_impatience
from tests.tidy.tree import ROOT

TESTS = '''
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.clients
HERE = Path(__file__).parent


def count(name):
    """How often it was asked so far, this time included."""
    with (HERE / name).open("a") as file:
        file.write(".")
    return (HERE / name).stat().st_size


@pytest.fixture(scope="session")
def broker():
    if count("broker") == 1:
        raise ConnectionRefusedError("connection refused")
    yield "broker"


def test_fixture_comes_late(broker):
    assert broker == "broker"


def test_slow_once():
    if count("slow_once") == 1:
        raise subprocess.TimeoutExpired("penstock", 60)


def test_slow_always():
    count("slow_always")
    raise TimeoutError("the topic was never made")


@pytest.mark.timeout(1)
def test_hangs():
    count("hangs")
    while True:
        time.sleep(0.01)


def test_lost():
    count("lost")
    assert ["a"] == ["a", "b"], "a record is lost"


@pytest.fixture
def leaving_a_mess():
    yield
    assert count("mess") == 0, "the broker ended with code 1"


def test_slow_and_wrong(leaving_a_mess):
    raise TimeoutError("slow")
'''
UNMARKED = """
from test_waiting import count


def test_not_of_processes():
    count("unmarked")
    raise TimeoutError("slow")
"""
RUNS = {
    "broker": 2,
    "slow_once": 2,
    "slow_always": 2,
    "hangs": 2,
    "lost": 1,
    "mess": 1,
    "unmarked": 1,
}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_only_timeouts_are_rerun_and_once(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_waiting.py").write_text(TESTS)
    (tmp_path / "test_unmarked.py").write_text(UNMARKED)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = clients\ntimeout = 60\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.second_chance", "-n", workers]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert {name: (tmp_path / name).stat().st_size for name in RUNS} == RUNS, done.stdout
    *_, last = done.stdout.splitlines()
    for words in ("5 failed", "2 passed", "4 second chance", "1 error"):
        assert words in last, done.stdout
    told = [line for line in done.stdout.splitlines() if line.startswith("SECOND CHANCE")]
    assert len(told) == 4
    assert any("test_slow_once" in line and "timed out after 60 seconds" in line for line in told)
    assert any("test_fixture_comes_late (setup)" in line for line in told)


def test_timeouts_are_recognized() -> None:
    class KafkaTimeoutError(Exception):
        """As aiokafka calls it."""

    assert is_impatience(KafkaTimeoutError())
    assert is_impatience(BrokenPipeError())
    assert is_impatience(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    assert not is_impatience(KafkaException(KafkaError(KafkaError._FATAL)))
    assert is_impatience(ExceptionGroup("two", [TimeoutError(), ConnectionResetError()]))
    assert not is_impatience(ExceptionGroup("two", [TimeoutError(), AssertionError()]))
    assert not is_impatience(AssertionError("Timeout (>300.0s) from pytest-timeout."))
    assert not is_impatience(OSError("no space left"))
