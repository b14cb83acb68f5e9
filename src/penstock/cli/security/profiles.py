"""`penstock profile`: clusters by name, so that `-b` and passwords need not be typed again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import IO

import click

from penstock.cli.terminal import profile_file
from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import profile_names
from penstock.cli.terminal.output import OutputFormat, format_option, print_data, print_rows
from penstock.cli.terminal.profile_file import Profile

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

name_argument = click.argument("name", help="The profile.", shell_complete=profile_names)


@click.group("profile", no_args_is_help=True)
def profile() -> None:
    """Keep clusters by name: where they are, and how to get in.

    The profile in use is taken by every command that is not told --brokers; --profile NAME takes
    another one for one command.
    """


@profile.command("add")
@click.argument("name", help="What to call it.")
@click.option(
    "-b", "--brokers", required=True, metavar="HOST:PORT,...", help="Brokers to connect to first."
)
@click.option("--username", help="Log in as this user; the password is asked for.")
@click.option(
    "--password-file",
    type=click.File("r"),
    help="Where the password is, in its first line; - is standard input.  [default: asked for]",
)
@click.option("--mechanism", type=click.Choice(MECHANISMS), help="How to log in [SCRAM-SHA-256].")
@click.option("--tls", is_flag=True, help="Connect by TLS.")
@click.option("--ca", type=click.Path(dir_okay=False), help="Trust this authority (PEM).")
@click.option("--certificate", type=click.Path(dir_okay=False), help="Show this certificate (PEM).")
@click.option("--key", type=click.Path(dir_okay=False), help="The certificate's key (PEM).")
@click.option(
    "--from",
    "properties",
    type=click.File("r"),
    help="Take security settings from a file of name=value, as Kafka's tools take it.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="A security setting by Kafka's name, such as sasl.mechanism=PLAIN; repeatable.",
)
@click.option("--use", is_flag=True, help="Use it from now on; the first one is used anyway.")
@click.option("--replace", is_flag=True, help="Replace a profile of this name.")
def add_command(
    name: str,
    brokers: str,
    username: str | None,
    password_file: IO[str] | None,
    mechanism: str | None,
    tls: bool,
    ca: str | None,
    certificate: str | None,
    key: str | None,
    properties: IO[str] | None,
    sets: tuple[str, ...],
    use: bool,
    replace: bool,
) -> None:
    """Keep a cluster under a name.

    \b
    penstock profile add dev -b 127.0.0.1:9092
    penstock profile add prod -b node-1:9092,node-2:9092 --username alice --tls --ca ca.pem
    penstock profile add prod -b node-1:9092 --from client.properties --replace
    """
    profiles = profile_file.read()
    profile_file.check_name(name)
    if name in profiles.by_name and not replace:
        raise UserError(f"there is a profile {name!r} already; add --replace, or take another name")
    if len(profiles.by_name) >= profile_file.PROFILES_MAX:
        raise UserError(f"there are {profile_file.PROFILES_MAX} profiles; remove some")
    security = _given(properties, sets)
    for setting, value in (
        ("sasl.username", username),
        ("sasl.mechanism", mechanism),
        ("ssl.ca.location", ca and _absolute(ca)),
        ("ssl.certificate.location", certificate and _absolute(certificate)),
        ("ssl.key.location", key and _absolute(key)),
    ):
        if value:
            security[setting] = value
    if password_file is not None:
        security["sasl.password"] = password_file.readline().rstrip("\r\n")
    elif username and "sasl.password" not in security:
        security["sasl.password"] = _ask_password(username)
    if tls and "security.protocol" not in security:
        has_login = any(setting.startswith("sasl.") for setting in security)
        security["security.protocol"] = "SASL_SSL" if has_login else "SSL"
    _check(brokers, security)
    profiles.by_name[name] = Profile(brokers, security)
    if use or profiles.current is None:
        profiles.current = name
    profile_file.write(profiles)
    note = "; it is in use" if profiles.current == name else f"; `penstock profile use {name}`"
    print(f"added profile {name}{note}")


def _given(properties: IO[str] | None, sets: tuple[str, ...]) -> dict[str, str]:
    from penstock.cli.server.up import parse_pairs
    from penstock.client.security_settings import is_security, read_properties

    if properties is None:
        return parse_pairs(sets, "--set")
    try:
        found = read_properties(properties.read())
    except ValueError as error:
        raise UserError(f"--from {properties.name}: {error}") from None
    # Such files often name brokers and other things of Kafka's clients, too.
    return {k: v for k, v in found.items() if is_security(k)} | parse_pairs(sets, "--set")


def _absolute(path: str) -> str:
    import os

    return os.path.abspath(path)


def _ask_password(username: str) -> str:
    if not sys.stdin.isatty():
        raise UserError("no password; say where it is with --password-file (- is standard input)")
    password: str = click.prompt(f"Password of {username}", hide_input=True, err=True)
    return password


def _check(brokers: str, security: dict[str, str]) -> None:
    """So that a mistake is said now, not when the profile is used."""
    from penstock.client.cluster import parse_brokers
    from penstock.client.security_settings import parse_security
    from penstock.runtime.random import SystemRandom

    try:
        parse_brokers(brokers)
    except ValueError as error:
        raise UserError(f"--brokers: {error}") from None
    try:
        parse_security(security, SystemRandom())
    except ValueError as error:
        raise UserError(str(error)) from None


@profile.command("list")
@format_option
def list_command(format: OutputFormat) -> None:
    """List profiles; the one in use is marked.

    \b
    penstock profile list
    penstock profile list --format wide
    """
    profiles = profile_file.read()
    rows = [
        (
            name,
            name == profiles.current,
            one.brokers,
            one.security.get("sasl.username"),
            one.security.get("security.protocol"),
            one.security.get("sasl.mechanism"),
        )
        for name, one in sorted(profiles.by_name.items())
    ]
    keys = ("name", "in_use", "brokers", "user", "protocol", "mechanism")
    columns = ["name", "in use", "brokers", "user", "+protocol", "+mechanism"]
    print_rows(format, keys, columns, rows)
    if not rows and not format.is_data:
        print("there are none; `penstock profile add --help` says how", file=sys.stderr)


@profile.command("show")
@click.argument(
    "name", required=False, help="The profile [the one in use].", shell_complete=profile_names
)
@format_option
def show_command(name: str | None, format: OutputFormat) -> None:
    """Show a profile, without its secrets.

    \b
    penstock profile show
    penstock profile show prod --format json
    """
    profiles = profile_file.read()
    if name is None and profiles.current is None:
        raise UserError("no profile is in use; `penstock profile use NAME`, or name one")
    name = name or str(profiles.current)
    one = profiles.require(name)
    security = dict(_redacted(one.security))
    if format.is_data:
        in_use = name == profiles.current
        document = {"name": name, "in_use": in_use, "brokers": one.brokers, "security": security}
        print_data(document, format)
        return
    print(f"profile  {name}{' (in use)' if name == profiles.current else ''}")
    print(f"brokers  {one.brokers}")
    for setting, value in security.items():
        print(f"setting  {setting}={value}")
    print(f"file     {profile_file.path()}")


def _redacted(security: dict[str, str]) -> Iterator[tuple[str, str]]:
    from penstock.cli.terminal.redaction import REDACTED, is_secret

    for setting, value in sorted(security.items()):
        # A key's location is no secret, but the name has the word in it.
        is_hidden = is_secret(setting) and not setting.endswith(".location")
        yield setting, REDACTED if is_hidden else value


@profile.command("use")
@name_argument
def use_command(name: str) -> None:
    """Use a profile from now on, wherever --brokers is not given.

    \b
    penstock profile use prod
    """
    profiles = profile_file.read()
    one = profiles.require(name)
    profiles.current = name
    profile_file.write(profiles)
    print(f"using {name}: {one.brokers}")


@profile.command("remove")
@name_argument
@yes_option
def remove_command(name: str, yes: bool) -> None:
    """Forget a profile, with its password.

    \b
    penstock profile remove old --yes
    """
    profiles = profile_file.read()
    profiles.require(name)
    confirm(f"Forget profile {name}?", yes)
    del profiles.by_name[name]
    if profiles.current == name:
        profiles.current = None
    profile_file.write(profiles)
    print(f"removed profile {name}")
    if profiles.current is None and profiles.by_name:
        print("no profile is in use; `penstock profile use NAME`", file=sys.stderr)
