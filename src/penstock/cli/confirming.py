"""Asking before something is lost, moved or ended.

At a terminal a person is asked. Where nobody can be asked, nothing is done unless the command line
says `--yes`: a script that deletes must say that it means it.
"""

import sys

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
    click.confirm(question, abort=True, err=True)
