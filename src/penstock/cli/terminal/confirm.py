"""Confirmation prompts for destructive or disruptive commands.

At a terminal the command asks the user. Without a terminal it refuses, unless `--yes` is given: a
script must state that it wants the deletion.
"""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from penstock.cli.terminal.errors import UserError

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, yes: bool) -> None:
    """Returns if the user answers yes; aborts otherwise. `question` is a sentence ending in `?`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(
            f"cannot ask {question!r}: standard input is not a terminal; pass --yes to confirm "
            "(nothing was done)"
        )
    while True:
        answer = _ask(f"{question} [y/N]: ").strip().lower()
        if answer in ("y", "yes"):
            return
        if answer in ("", "n", "no"):
            raise click.Abort
        click.echo("Please answer y or n.", err=True)


def _ask(prompt: str) -> str:
    """Returns the line that the user types; empty if they close the input."""
    try:
        with _interruptible() as interrupted:
            click.echo(prompt, nl=False, err=True)
            select.select([sys.stdin, interrupted], [], [])
            return sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo(err=True)
        raise click.Abort from None


@contextmanager
def _interruptible() -> Iterator[int]:
    """Makes Ctrl-C end the wait for an answer at once.

    On an event loop Ctrl-C only cancels the task, which does not notice until the user answers. A
    signal that comes just before a read would wait for that read. So the caller also waits for
    this pipe, which a signal makes readable.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    woken = signal.set_wakeup_fd(writing)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGINT, handler)
        os.close(reading)
        os.close(writing)
