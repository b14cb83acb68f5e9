"""`penstock user`: who may log in by a password."""

from __future__ import annotations

import sys
from typing import IO

import click

from penstock.cli.confirming import confirm, yes_option
from penstock.cli.errors import UserError
from penstock.cli.output import Format, format_option, print_listing
from penstock.cli.session import Session, brokers_option, nearest, run
from penstock.security import scram

mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(scram.MECHANISMS)),
    multiple=True,
    help="Only for this mechanism; repeatable.  [default: all]",
)


@click.group("user", no_args_is_help=True)
def user() -> None:
    """Who may log in by a password (SCRAM and PLAIN)."""


@user.command("list")
@brokers_option
@format_option
def list_command(brokers: str, format: Format) -> None:
    """List users, with the mechanisms that they have passwords for.

    \b
    penstock user list
    """

    async def work(session: Session) -> None:
        from penstock.client.access import Access

        found = await Access(session.cluster).users()
        print_listing(
            format,
            [{"user": one.name, "mechanisms": one.mechanisms} for one in found],
            ("user", "mechanisms", "+iterations"),
            [
                (one.name, sorted(one.mechanisms), [n for _, n in sorted(one.mechanisms.items())])
                for one in found
            ],
        )

    run(brokers, work)


@user.command("set")
@click.argument("name", help="The user's name.")
@click.option(
    "--password-file",
    type=click.File("r"),
    help="Where the password is, in its first line; - is standard input.  [default: asked for]",
)
@click.option(
    "--iterations",
    type=click.IntRange(scram.ITERATIONS_MIN, scram.ITERATIONS_MAX),
    default=scram.ITERATIONS,
    show_default=True,
    help="How much work a guess is to cost.",
)
@mechanism_option
@brokers_option
def set_command(
    name: str,
    password_file: IO[str] | None,
    iterations: int,
    mechanisms: tuple[str, ...],
    brokers: str,
) -> None:
    """Add a user, or give one a new password.

    The password is salted and hashed here; the broker never sees it.

    \b
    penstock user set alice
    penstock user set alice --password-file secret.txt
    """
    if password_file is not None:
        password = password_file.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise UserError("no password; say where it is with --password-file (- is standard input)")
    if not password:
        raise UserError("an empty password lets everybody in; choose another")

    async def work(session: Session) -> None:
        from penstock.client.access import Access

        chosen = mechanisms or tuple(scram.MECHANISMS)
        await Access(session.cluster).set_password(name, password, chosen, iterations)
        print(f"set the password of {name} ({', '.join(chosen)})")

    run(brokers, work)


@user.command("delete")
@click.argument("name", help="The user's name.")
@mechanism_option
@yes_option
@brokers_option
def delete_command(name: str, mechanisms: tuple[str, ...], yes: bool, brokers: str) -> None:
    """Delete a user's passwords. Connections that are open stay open.

    \b
    penstock user delete alice
    """

    async def work(session: Session) -> None:
        from penstock.client.access import Access

        access = Access(session.cluster)
        known = {one.name: one.mechanisms for one in await access.users()}
        chosen = mechanisms or tuple(known.get(name, {}))
        if not chosen:
            close = nearest(name, known)
            hint = f"did you mean {close!r}?" if close else "see `penstock user list`"
            raise UserError(f"there is no user {name!r}; {hint}")
        confirm(f"Delete user {name}?", yes)
        await access.delete_user(name, chosen)
        print(f"deleted {name} ({', '.join(chosen)})")

    run(brokers, work)
