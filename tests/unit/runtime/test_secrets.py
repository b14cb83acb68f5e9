"""`penstock.runtime.secrets`: from a file, the environment, or a command."""

import sys
from pathlib import Path

import pytest

from penstock.runtime import secrets
from penstock.runtime.secrets import NoSecret, read_secret


def test_each_source_gives_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kek"
    path.write_text("from a file\n")
    monkeypatch.setenv("A_KEK", "from the environment")
    assert read_secret(f"file:{path}") == "from a file\n"
    assert read_secret("env:A_KEK") == "from the environment"
    assert read_secret("command:echo 'from a command'") == "from a command\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("/etc/kek", "invalid source"),
        ("vault:secret", "invalid source"),
        ("file:", "invalid source"),
        ("file:/there/is/none", "cannot read"),
        ("env:NO_SUCH_VARIABLE_HERE", "is not set"),
        ("command:no-such-program-here --x", "cannot run"),
        ("command:false", "failed with exit code 1"),
        ("command:echo 'unfinished", "command"),
        ("command:printf '\\377'", "not ASCII text"),
    ],
)
def test_unreadable_secret_is_reported_with_the_reason(source: str, why: str) -> None:
    with pytest.raises(NoSecret, match=why):
        read_secret(source)


def test_command_runs_without_a_shell_and_its_output_is_not_shown() -> None:
    assert read_secret("command:echo a; echo b") == "a; echo b\n"
    program = f"{sys.executable} -c \"print('sesame'); raise SystemExit(3)\""
    with pytest.raises(NoSecret) as failed:
        read_secret(f"command:{program}")
    assert "sesame" not in str(failed.value)


def test_command_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "COMMAND_SECONDS_MAX", 0.05)
    with pytest.raises(NoSecret, match="did not end"):
        read_secret("command:sleep 60")
