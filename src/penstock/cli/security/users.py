"""`penstock user`: manages users, their passwords and access keys."""

from __future__ import annotations

import sys
from typing import IO

import click

from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    print_listing,
    print_rows,
)
from penstock.cli.terminal.session import CommandSession, brokers_option, nearest, run
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
    """Manage users, their passwords and access keys.

    Users log in with passwords (SCRAM, PLAIN) or sign with access keys (SQS, SNS)."""


@user.command("list")
@brokers_option
@format_option
def list_command(brokers: str, format: OutputFormat) -> None:
    """List users with the SASL mechanisms that they have passwords for.

    \b
    penstock user list
    """

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import AccessAdmin

        found = await AccessAdmin(session.cluster).users()
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
    help="File with the password in its first line; - is standard input.  [default: prompt]",
)
@click.option(
    "--iterations",
    type=click.IntRange(scram.ITERATIONS_MIN, scram.ITERATIONS_MAX),
    default=scram.ITERATIONS,
    show_default=True,
    help="Hash iterations: the cost of a password guess.",
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
    """Add a user, or change a user's password.

    The command salts and hashes the password; the broker never sees it.

    \b
    penstock user set alice
    penstock user set alice --password-file secret.txt
    """
    if password_file is not None:
        password = password_file.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise UserError("no password; pass --password-file (- is standard input)")
    if not password:
        raise UserError("the password is empty; choose another")

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import AccessAdmin

        chosen = mechanisms or tuple(scram.MECHANISMS)
        await AccessAdmin(session.cluster).set_password(name, password, chosen, iterations)
        print(f"set the password of {name} ({', '.join(chosen)})")

    run(brokers, work)


@user.command("delete")
@click.argument("name", help="The user's name.")
@mechanism_option
@yes_option
@brokers_option
def delete_command(name: str, mechanisms: tuple[str, ...], yes: bool, brokers: str) -> None:
    """Delete a user's passwords and access keys. Open connections stay open.

    With --mechanism, delete only the passwords for that mechanism.

    \b
    penstock user delete alice
    """

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import AccessAdmin

        access = AccessAdmin(session.cluster)
        known = {one.name: one.mechanisms for one in await access.users()}
        chosen = mechanisms or tuple(known.get(name, {}))
        keys = [] if mechanisms else [row.access_key for row in await access.access_keys(name)]
        if not chosen and not keys:
            close = nearest(name, known)
            hint = f"did you mean {close!r}?" if close else "see `penstock user list`"
            raise UserError(f"user {name!r} does not exist; {hint}")
        confirm(f"Delete user {name}?", yes)
        if chosen:
            await access.delete_user(name, chosen)
        for access_key in keys:
            await access.delete_key(access_key)
        print(f"deleted {name} ({', '.join((*chosen, *keys))})")

    run(brokers, work)


# -- access keys ------------------------------------------------------------------------------


@user.group("key", no_args_is_help=True)
def key() -> None:
    """Manage access keys, with which AWS SDKs sign SQS and SNS requests."""


@key.command("create")
@click.argument("name", help="The user.")
@brokers_option
@format_option
def create_key_command(name: str, brokers: str, format: OutputFormat) -> None:
    """Create an access key for a user. Its secret is shown only now.

    \b
    penstock user key create alice
    """

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import AccessAdmin

        access_key, secret = await AccessAdmin(session.cluster).create_key(name)
        if format is OutputFormat.text:
            print(f"AWS_ACCESS_KEY_ID={access_key}\nAWS_SECRET_ACCESS_KEY={secret}")
        else:
            print_data({"user": name, "access_key": access_key, "secret": secret}, format)

    run(brokers, work)


@key.command("list")
@click.argument("name", required=False, help="The user.  [default: all users]")
@brokers_option
@format_option
def list_keys_command(name: str | None, brokers: str, format: OutputFormat) -> None:
    """List access keys, without their secrets.

    \b
    penstock user key list
    """

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import AccessAdmin

        found = await AccessAdmin(session.cluster).access_keys(name)
        print_rows(
            format,
            ("user", "access_key", "created_ms"),
            ("user", "access key", "+created "),
            [(row.user, row.access_key, row.created_ms) for row in found],
        )

    run(brokers, work)


@key.command("delete")
@click.argument("access_key", help="The key's id.")
@yes_option
@brokers_option
def delete_key_command(access_key: str, yes: bool, brokers: str) -> None:
    """Delete an access key: brokers refuse requests signed with it from now on.

    \b
    penstock user key delete PNSK2X4QAZ7M5R3TUV6W
    """
    confirm(f"Delete access key {access_key}?", yes)

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import AccessAdmin

        await AccessAdmin(session.cluster).delete_key(access_key)
        print(f"deleted access key {access_key}")

    run(brokers, work)
