"""Every command keeps the rules of all commands: help, examples, formats, asking first."""

import inspect
from pathlib import Path

import click
import pytest

from penstock.cli.command_table import COMMANDS, SECTIONS
from penstock.cli.main import run
from penstock.cli.terminal.output import OutputFormat
from penstock.cli.tools.cheat import PAGES
from tests.unit.cli.tree import commands, read

TREE = dict(commands())
NAMES = [" ".join(path) for path in TREE]
# Words that say that something is lost, moved or ended.
DANGEROUS = {"delete", "truncate", "purge", "redrive", "remove", "abort", "drain", "reassign"}
DANGEROUS |= {"seek", "reset", "replay", "elect"}
LISTING = {"list", "describe", "show", "peek", "stats", "history", "status", "advise"}
# Prints code, not rows.
WITHOUT_FORMAT = {"wire show"}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that examples name."""
    monkeypatch.chdir(tmp_path)
    for name in ("plan.json", "node.log", "secret.txt", "client.properties", "photo.jpg"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def examples(command: click.Command) -> list[str]:
    lines = [line.strip() for line in inspect.cleandoc(command.help or "").splitlines()]
    return [line for line in lines if line.startswith(("penstock ", "echo ", "printf "))]


@pytest.mark.parametrize("name", NAMES)
def test_help_has_a_description_and_examples(name: str) -> None:
    command = TREE[tuple(name.split())]
    assert command.help, name
    first = command.help.strip().partition("\n")[0]
    assert first[0].isupper(), first
    assert first.endswith("."), first
    shown = examples(command)
    assert shown, f"`penstock {name} --help` has no example"
    for line in shown:
        assert " ".join(read(line)) == name, line


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_and_option_has_help(name: str) -> None:
    for param in TREE[tuple(name.split())].params:
        assert getattr(param, "help", None), f"{name}: {param.name}"


@pytest.mark.parametrize("name", [n for n in NAMES if LISTING & set(n.split()[-1:])])
def test_every_listing_has_every_format(name: str) -> None:
    if name in WITHOUT_FORMAT:
        return
    options = {param.name: param for param in TREE[tuple(name.split())].params}
    assert "format" in options, name
    kind = options["format"].type
    assert isinstance(kind, click.Choice)
    assert {str(choice) for choice in kind.choices} >= set(map(str, OutputFormat))


@pytest.mark.parametrize("name", [n for n in NAMES if DANGEROUS & set(n.split()[-1:])])
def test_dangerous_command_accepts_yes(name: str) -> None:
    options = {word for param in TREE[tuple(name.split())].params for word in param.opts}
    assert {"--yes", "-y"} <= options, name


@pytest.mark.parametrize("page", PAGES)
def test_every_line_of_the_cheat_sheet_is_a_command(page: str) -> None:
    for line in [line for rows in PAGES[page].values() for line in rows]:
        assert read(line.command) in TREE, line
        assert len(line.command) + len(line.meaning) < 130, line


def test_cheat_sheet_covers_common_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cheat"]) == 0
    shown = capsys.readouterr().out
    assert "penstock dlq redrive orders.dlq --rate 100" in shown
    assert "\x1b" not in shown
    assert run(["cheat", "kafka"]) == 0
    assert "kafka-consumer-groups.sh" in capsys.readouterr().out


def test_help_is_grouped_by_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{title}:\n") for title in SECTIONS]
    assert places == sorted(places)
    for name in COMMANDS:
        assert f"\n  {name} " in shown
    assert "..." not in shown.partition("Start:")[2], "a line is too long to be shown whole"


def test_examples_have_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "create", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "\n  Examples:\n    penstock topic create orders -p 6\n" in shown
