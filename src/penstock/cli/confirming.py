"""Asking before something is lost, moved or ended.

At a terminal a person is asked. Where nobody can be asked, nothing is done unless the command line
says `--yes`: a script that deletes must say that it means it.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from penstock.cli.errors import UserError

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, yes: bool) -> None:
    """Goes on if the answer is yes; a question is a whole sentence that ends in `?`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(
            f"nobody is here to answer {question!r}; add --yes if you mean it (nothing was done)"
        )
    with _interruptible():
        click.confirm(question, abort=True, err=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the wait for an answer at once. On an event loop it would only cancel the task,
    which does not notice before somebody has answered."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
