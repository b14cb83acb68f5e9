"""Asking before something is lost, moved or ended.

At a terminal a person is asked. Where nobody can be asked, nothing is done unless the command line
says `--yes`: a script that deletes must say that it means it.
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
    """Goes on if the answer is yes; a question is a whole sentence that ends in `?`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(
            f"nobody is here to answer {question!r}; add --yes if you mean it (nothing was done)"
        )
    while True:
        answer = _ask(f"{question} [y/N]: ").strip().lower()
        if answer in ("y", "yes"):
            return
        if answer in ("", "n", "no"):
            raise click.Abort
        click.echo("Please answer y or n.", err=True)


def _ask(prompt: str) -> str:
    """A line that a person types; nothing if they end the input."""
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
    """Ctrl-C ends the wait for an answer at once. On an event loop it would only cancel the task,
    which does not notice before somebody has answered; and one that comes just before a read would
    wait for that to end. So there is something else to wait for, which a signal makes readable."""
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
