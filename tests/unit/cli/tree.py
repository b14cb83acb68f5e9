"""The tree of commands, walked: every command with the words that reach it."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack

import click

from penstock.cli.main import app


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something; the words begin after `penstock`."""
    waiting: list[tuple[tuple[str, ...], click.Command]] = [((), app)]
    while waiting:
        path, command = waiting.pop(0)
        if not isinstance(command, click.Group):
            yield path, command
            continue
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, name
            waiting.append(((*path, name), child))


def read(line: str) -> tuple[str, ...]:
    """The words of a command line that lead to its command, once all of it was understood.

    What the shell takes away (pipes, redirections) is taken away here; nothing is run.
    """
    line = line.rpartition("| ")[2]
    words = shlex.split(line.partition(" > ")[0].partition(" < ")[0], comments=True)
    assert words[0] == "penstock", line
    path: list[str] = []
    with ExitStack() as opened:
        context = opened.enter_context(app.make_context("penstock", words[1:]))
        while isinstance(context.command, click.Group):
            rest = [*context._protected_args, *context.args]
            name, command, rest = context.command.resolve_command(context, rest)
            assert command is not None
            assert name is not None
            path.append(name)
            context = opened.enter_context(command.make_context(name, rest, parent=context))
    return tuple(path)
