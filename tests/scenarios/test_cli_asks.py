"""Whatever deletes, purges or moves asks a person, and does nothing in a script without --yes.

Every command with --yes is here or in `ELSEWHERE`; the walk of the tree sees to it.
"""

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.brokers import COMMAND, PenstockProcess
from tests.conftest import FreshBroker
from tests.unit.cli.tree import commands

# What each command is given; every one of them would succeed with --yes.
ASKING = {
    "topic truncate": ["t"],
    "acl remove": ["--principal", "alice"],
    "quota remove": ["--user", "alice"],
    "user delete": ["alice"],
    "group delete": ["g"],
    "replay": ["t", "-g", "g", "--from-offset", "start"],
    "dlq redrive": ["t.dlq", "--to", "t"],
    "dlq purge": ["t.dlq", "--all"],
    "profile remove": ["dev"],
    "topic delete": ["t"],
}
# Needs several nodes, or a transaction that is open: asked there.
ELSEWHERE = {
    "cluster drain": "test_cluster_moves.py",
    "cluster reassign": "by the same words as drain",
    "cluster elect": "asks for --unclean only",
    "txn abort": "tests/clients/test_cli_groups.py",
    "group seek": "shows what it would do, unless told --yes",
}


class Shell:
    def __init__(self, broker: PenstockProcess, home: Path) -> None:
        self._broker = broker
        self._environment = {**os.environ, "XDG_CONFIG_HOME": str(home), "NO_COLOR": "1"}
        self._environment |= {"PENSTOCK_BROKERS": broker.bootstrap}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self._environment,
        )

    def ok(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def answer(self, text: str, *words: str) -> tuple[int, str]:
        """At a terminal, with this typed; the exit code and what was asked."""
        main, side = pty.openpty()
        try:
            os.write(main, text.encode())
            done = subprocess.run(
                [COMMAND, *words],
                stdin=side,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env=self._environment,
            )
        finally:
            os.close(main)
            os.close(side)
        return done.returncode, done.stderr


@pytest.fixture
def shell(fresh_broker: FreshBroker, tmp_path: Path) -> Shell:
    rights = {"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}
    shell = Shell(fresh_broker(sets=rights), tmp_path / "config")
    for topic in ("t", "t.dlq"):
        shell.ok("topic", "create", topic)
        shell.ok("produce", topic, "x", "-n", "3")
    shell.ok("group", "seek", "g", "--to", "end", "-t", "t", "--yes")
    shell.ok("acl", "allow", "alice", "read", "--topic", "t")
    shell.ok("quota", "set", "--user", "alice", "producer_byte_rate=1000")
    (tmp_path / "password").write_text("hunter2-hunter2")
    shell.ok("user", "set", "alice", "--password-file", str(tmp_path / "password"))
    shell.ok("profile", "add", "dev", "-b", "127.0.0.1:1")
    return shell


def test_every_command_that_takes_yes_is_tested() -> None:
    taking = {
        " ".join(path)
        for path, command in commands()
        if any("--yes" in param.opts for param in command.params)
    }
    assert taking == {*ASKING, *ELSEWHERE}


def test_nothing_is_lost_before_somebody_said_yes(shell: Shell) -> None:
    state = ["topic list", "acl list", "quota list", "user list", "profile list", "dlq list"]
    state += ["group describe g", "topic describe t"]
    before = [shell.ok(*line.split()) for line in state]
    for name, rest in ASKING.items():
        done = shell.run(*name.split(), *rest)
        assert done.returncode == 1, name
        assert "add --yes if you mean it (nothing was done)" in done.stderr, name
    code, asked = shell.answer("n\n", "topic", "delete", "t")
    assert code == 130
    assert "Delete t with all records? [y/N]" in asked
    assert [shell.ok(*line.split()) for line in state] == before
    code, _ = shell.answer("y\n", "topic", "truncate", "t")
    assert code == 0
    for name, rest in ASKING.items():
        done = shell.run(*name.split(), *rest, "--yes")
        assert done.returncode == 0, (name, done.stderr)
    assert [shell.ok(*line.split()) for line in state[:1]] != before[:1]
