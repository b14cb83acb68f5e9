"""Whatever deletes, purges or moves asks a person, and does nothing in a script without --yes.

Every command with --yes is here or in `ELSEWHERE`; the walk of the tree sees to it.
"""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from penstock.cli import main
from tests.brokers import COMMAND, PenstockProcess
from tests.conftest import FreshBroker
from tests.unit.cli.tree import commands

# Arguments of each command; every one of them succeeds with --yes, in this order.
ASKING = {
    "topic truncate": ["t"],
    "acl remove": ["--principal", "alice"],
    "quota remove": ["--user", "alice"],
    "user delete": ["alice"],
    "group delete": ["g"],
    "replay": ["t", "-g", "h", "--from-offset", "start"],
    "dlq redrive": ["t.dlq", "--to", "t", "--limit", "1"],
    "dlq purge": ["t.dlq", "--all"],
    "profile remove": ["dev"],
    "topic delete": ["t"],
}
# Needs several nodes, a transaction that is open, or Spark: asked there, or by the same words.
ELSEWHERE = {
    "user key delete": "by the same words as user delete",
    "job replay": "tests/spark",
    "job dlq-triage": "tests/spark",
    "cluster drain": "test_cluster_moves.py",
    "cluster reassign": "by the same words as drain",
    "cluster elect": "asks for --unclean only",
    "cluster accept-loss": "tests/unit/cli/cluster/test_accept_loss.py",
    "cluster recover-metadata": "shows what it would do, unless told --yes",
    "txn abort": "tests/clients/test_cli_groups.py",
    "group seek": "shows what it would do, unless told --yes",
}
STATE = ["topic list", "acl list", "quota list", "user list", "profile list", "group describe g"]
STATE += ["topic describe t", "topic describe t.dlq"]


class Shell:
    """Commands in this process, without a terminal to answer a question."""

    def __init__(self, broker: PenstockProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker = broker
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main.run(words)
        return code, *self._capsys.readouterr()

    def ok(self, *words: str) -> str:
        code, out, err = self.run(*words)
        assert code == 0, (words, err)
        return out

    def state(self) -> list[str]:
        return [self.ok(*line.split()) for line in STATE]


@pytest.fixture
def shell(
    fresh_broker: FreshBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    rights = {"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}
    shell = Shell(fresh_broker(sets=rights), capsys)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PENSTOCK_BROKERS", shell.broker.bootstrap)
    monkeypatch.setenv("NO_COLOR", "1")
    for topic in ("t", "t.dlq"):
        shell.ok("topic", "create", topic)
        shell.ok("produce", topic, "x", "-n", "3")
    for group in ("g", "h"):
        shell.ok("group", "seek", group, "--to", "end", "-t", "t", "--yes")
    shell.ok("acl", "allow", "alice", "read", "--topic", "t")
    shell.ok("quota", "set", "--user", "alice", "producer_byte_rate=1000")
    (tmp_path / "password").write_text("hunter2-hunter2")
    shell.ok("user", "set", "alice", "--password-file", str(tmp_path / "password"))
    shell.ok("profile", "add", "dev", "-b", "127.0.0.1:1")
    return shell


def answer(text: str, *words: str) -> tuple[int, str]:
    """At a terminal, with this typed; the exit code and what was asked."""
    main_end, side = pty.openpty()
    try:
        os.write(main_end, text.encode())
        done = subprocess.run(
            [COMMAND, *words], stdin=side, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        os.close(main_end)
        os.close(side)
    return done.returncode, done.stderr


def test_ctrl_c_counts_as_no(shell: Shell) -> None:
    main_end, side = pty.openpty()
    # A test run in the background ignores it, and so do all its children.
    heeding = ["env", "--default-signal=INT"]
    asking = subprocess.Popen(
        [*heeding, COMMAND, "topic", "delete", "t"], stdin=side, stderr=subprocess.PIPE, text=True
    )
    try:
        assert asking.stderr is not None
        asked = asking.stderr.read(len("Delete t with all records?"))
        assert asked == "Delete t with all records?"
        asking.send_signal(signal.SIGINT)
        assert asking.wait(10) == 130
    finally:
        asking.kill()
        asking.communicate()
        os.close(main_end)
        os.close(side)
    assert "t.dlq" in shell.ok("topic", "list")


def test_every_command_with_yes_is_covered() -> None:
    taking = {
        " ".join(path)
        for path, command in commands()
        if any("--yes" in param.opts for param in command.params)
    }
    assert taking == {*ASKING, *ELSEWHERE}


def test_nothing_is_changed_before_confirmation(shell: Shell) -> None:
    before = shell.state()
    for name, rest in ASKING.items():
        code, _, err = shell.run(*name.split(), *rest)
        assert code == 1, name
        assert "pass --yes to confirm (nothing was done)" in err, name
    code, asked = answer("n\n", "topic", "delete", "t")
    assert code == 130
    assert "Delete t with all records? [y/N]" in asked
    assert shell.state() == before
    assert answer("y\n", "topic", "truncate", "t")[0] == 0
    assert shell.state() != before
    for name, rest in ASKING.items():
        shell.ok(*name.split(), *rest, "--yes")
