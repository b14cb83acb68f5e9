"""A shell that completes: commands and options by themselves, topics and groups by the broker."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.brokers import COMMAND
from tests.conftest import FreshBroker


def complete(brokers: str, home: Path, *words: str) -> list[str]:
    """Completions that bash would offer for the last word."""
    environment = {
        **os.environ,
        "_PENSTOCK_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("penstock", *words)),
        "COMP_CWORD": str(len(words)),
        "PENSTOCK_BROKERS": brokers,
        "XDG_CONFIG_HOME": str(home),
    }
    done = subprocess.run([COMMAND], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_topics_and_groups_are_completed_from_the_broker(
    fresh_broker: FreshBroker, tmp_path: Path
) -> None:
    broker = fresh_broker()
    here = broker.bootstrap, tmp_path
    words = [COMMAND, "topic", "create", "orders", "orders.dlq", "payments", "-b", broker.bootstrap]
    subprocess.run(words, check=True, capture_output=True)
    words = [COMMAND, "group", "seek", "billing", "--to", "end", "-t", "orders", "--yes"]
    subprocess.run([*words, "-b", broker.bootstrap], check=True, capture_output=True)
    assert complete(*here, "consume", "ord") == ["orders", "orders.dlq"]
    assert complete(*here, "topic", "describe", "p") == ["payments"]
    assert complete(*here, "dlq", "stats", "") == ["orders.dlq"]
    assert complete(*here, "group", "describe", "") == ["billing"]
    assert complete(*here, "topic", "alter", "orders", "-c", "retention.m") == [
        "retention.mode",
        "retention.ms",
    ]
    assert "describe" in complete(*here, "topic", "de")
    assert "--brokers" in complete(*here, "topic", "list", "--b")


def test_unreachable_broker_completes_nothing(tmp_path: Path) -> None:
    assert complete("127.0.0.1:1", tmp_path, "consume", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_penstock(shell: str) -> None:
    done = subprocess.run([COMMAND, "completion", shell], capture_output=True, text=True)
    assert done.returncode == 0
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in done.stdout
    if shell == "bash":
        checked = subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False)
        assert checked.returncode == 0
