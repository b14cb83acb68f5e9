"""End of a command: exit codes, one line for a mistake, a traceback only for bugs of Penstock."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli import main

PENSTOCK = str(Path(sys.executable).parent / "penstock")
# A closed port.
CLOSED_PORT = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_BROKERS", raising=False)


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """Runs a command that must fail with this code and one line on standard error."""
    assert main.run(arguments) == code
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("penstock: ")
    return lines[0].removeprefix("penstock: ")


def test_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    out = capsys.readouterr().out
    for command in ("up", "topic", "produce", "consume", "group", "txn", "bench", "config", "wire"):
        assert f"  {command} " in out


def test_missing_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    main.run([])
    assert "Usage: penstock" in capsys.readouterr().out
    main.run(["topic"])
    assert "truncate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tpic"], "'topic'"),
        (["topic", "creat"], "'create'"),
        (["up", "--kafka-prot", "1"], "--kafka-port"),
        (["up", "--kafka-port", "many"], "--kafka-port"),
        (["consume"], "TOPICS"),
        (["produce", "t", "--codec", "rar"], "zstd"),
        (["topic", "list", "--format", "xml"], "json"),
    ],
)
def test_invalid_command_line_is_one_line_with_the_nearest_command(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    line = complaint(capsys, *arguments, code=2)
    assert expected in line
    assert "--help" in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["consume", "t", "-o", "foo"], "'foo' is not an offset; try start, end"),
        (["consume", "t", "-o", "9:5"], "ends before it starts"),
        (["consume", "t", "-f", "%x"], "unknown field %x"),
        (["produce", "t", "-H", ":v"], "write -H name:value"),
        (["produce", "t", "-K", "", "x"], "delimiter"),
        (["produce", "t", "-K", ":", "-k", "a", "x"], "leave out -k"),
        (["topic", "create", "t", "-c", "retention.ms"], "write -c name=value"),
        (["topic", "alter", "t"], "nothing to change"),
        (["topic", "truncate", "t", "--before", "1:2"], "is a range"),
        (["topic", "list", "-b", "host:port"], "write host:port"),
        (["up", "--set", "num.partitions"], "write --set name=value"),
        (["up", "--data", "a", "--set", "log.dirs=b"], "leave one of them out"),
        (["up", "--nodes", "3", "--set", "log.dirs=b"], "log.dirs is for a single node"),
        (["wire", "show", "Hartbeat"], "did you mean Heartbeat"),
        (["wire", "show", "Heartbeat", "9"], "has versions 0-4, not 9"),
        (["wire", "show", "qqq"], "penstock wire list"),
    ],
)
def test_invalid_argument_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert expected in complaint(capsys, *arguments, code=1)


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["topic", "describe", "t"],
        ["topic", "alter", "t", "-p", "3"],
        ["topic", "delete", "t"],
        ["topic", "truncate", "t"],
        ["produce", "t", "x"],
        ["consume", "t"],
        ["config", "list"],
        ["bench"],
    ],
)
def test_absent_broker_is_one_line_with_a_next_step(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    line = complaint(capsys, *command, "-b", CLOSED_PORT, code=1)
    assert line == (
        f"cannot reach {CLOSED_PORT}: connection refused; is the broker running? "
        "start one with `penstock up`"
    )


def test_brokers_come_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_BROKERS", "127.0.0.1:2")
    assert "cannot reach 127.0.0.1:2" in complaint(capsys, "topic", "list", code=1)


def test_misspelled_setting_is_answered_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    line = complaint(capsys, "up", "--data", data, "--set", "num.partition=3", code=1)
    assert "num.partition" in line
    assert "num.partitions" in line
    assert not (tmp_path / "data").exists()


def test_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise AssertionError("impossible")

    monkeypatch.setattr("penstock.cli.terminal.session.run", broken)
    monkeypatch.setattr("penstock.cli.data.topics.run", broken)
    with pytest.raises(AssertionError, match="impossible"):
        main.run(["topic", "list"])


def test_interrupt_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.cli.data.topics.run", interrupted)
    assert main.run(["topic", "list"]) == 130


def test_wire_commands_print_the_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["wire", "list"]) == 0
    assert "Heartbeat" in capsys.readouterr().out
    assert main.run(["wire", "show", "heartbeat", "4"]) == 0
    shown = capsys.readouterr().out
    assert "# HeartbeatRequest version 4" in shown
    assert "# HeartbeatResponse version 4" in shown
    assert "def read(" in shown
    compile(shown, "shown", "exec")


def test_help_imports_neither_the_broker_nor_the_client() -> None:
    program = (
        "import sys; from penstock.cli import main; code = main.run(['--help']); "
        "heavy = [m for m in ('rich.console', 'asyncio', 'uvloop', 'penstock.node.node', "
        "'penstock.client.cluster', 'penstock.wire.messages') if m in sys.modules]; "
        "print(heavy, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"


def test_installed_command_runs() -> None:
    done = subprocess.run([PENSTOCK, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"penstock {__version__}\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("1", False)])
def test_colors_need_a_terminal_that_wants_them(
    monkeypatch: pytest.MonkeyPatch, no_color: str, is_coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    for stream, words in (("stderr", ["topic", "lst"]), ("stdout", ["wire", "list"])):
        terminal = Terminal()
        monkeypatch.setattr(f"sys.{stream}", terminal)
        main.run(words)
        assert ("\x1b[" in terminal.getvalue()) is is_coloured, words
