"""Asking before something is lost."""

import sys

import click

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, yes: bool) -> None:
    """Asks a person; a script that got here meant it."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
