"""`penstock profile`: saves clusters under names, with brokers and security settings."""

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
    """Save clusters under names, with brokers and security settings.

    Commands without --brokers use the current profile; --profile NAME selects another one for a
    single command.
    """


@profile.command("add")
@click.argument("name", help="The profile's name.")
@click.option("-b", "--brokers", required=True, metavar="HOST:PORT,...", help="Bootstrap brokers.")
@click.option("--username", help="User name; the command asks for the password.")
@click.option(
    "--password-file",
    type=click.File("r"),
    help="File with the password in its first line; - is standard input.  [default: prompt]",
)
@click.option("--mechanism", type=click.Choice(MECHANISMS), help="SASL mechanism [SCRAM-SHA-256].")
@click.option("--tls", is_flag=True, help="Connect with TLS.")
@click.option("--ca", type=click.Path(dir_okay=False), help="Trusted CA certificates (PEM).")
@click.option("--certificate", type=click.Path(dir_okay=False), help="Client certificate (PEM).")
@click.option("--key", type=click.Path(dir_okay=False), help="Key of the client certificate (PEM).")
@click.option(
    "--from",
    "properties",
    type=click.File("r"),
    help="Properties file with security settings, as for Kafka's tools.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="Security setting by Kafka's name, e.g. sasl.mechanism=PLAIN; repeatable.",
)
@click.option(
    "--use", is_flag=True, help="Make it the current profile, as the first one always is."
)
@click.option("--replace", is_flag=True, help="Replace a profile with this name.")
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
    """Add a profile.

    \b
    penstock profile add dev -b 127.0.0.1:9092
    penstock profile add prod -b node-1:9092,node-2:9092 --username alice --tls --ca ca.pem
    penstock profile add prod -b node-1:9092 --from client.properties --replace
    """
    profiles = profile_file.read()
    profile_file.check_name(name)
    if name in profiles.by_name and not replace:
        raise UserError(f"profile {name!r} already exists; pass --replace, or choose another name")
    if len(profiles.by_name) >= profile_file.PROFILES_MAX:
        raise UserError(
            f"the limit of {profile_file.PROFILES_MAX} profiles is reached; remove some"
        )
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
    note = " (current)" if profiles.current == name else f"; use it: `penstock profile use {name}`"
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
    # Such files often hold brokers and other client settings, too.
    return {k: v for k, v in found.items() if is_security(k)} | parse_pairs(sets, "--set")


def _absolute(path: str) -> str:
    import os

    return os.path.abspath(path)


def _ask_password(username: str) -> str:
    if not sys.stdin.isatty():
        raise UserError("no password; pass --password-file (- is standard input)")
    password: str = click.prompt(f"Password of {username}", hide_input=True, err=True)
    return password


def _check(brokers: str, security: dict[str, str]) -> None:
    """Checks the settings now, so that mistakes do not appear only when the profile is used."""
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
    """List profiles; the current one is marked.

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
        print("no profiles; see `penstock profile add --help`", file=sys.stderr)


@profile.command("show")
@click.argument(
    "name", required=False, help="The profile [the current one].", shell_complete=profile_names
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
        raise UserError("there is no current profile; name one, or run `penstock profile use NAME`")
    name = name or str(profiles.current)
    one = profiles.require(name)
    security = dict(_redacted(one.security))
    if format.is_data:
        in_use = name == profiles.current
        document = {"name": name, "in_use": in_use, "brokers": one.brokers, "security": security}
        print_data(document, format)
        return
    print(f"profile  {name}{' (current)' if name == profiles.current else ''}")
    print(f"brokers  {one.brokers}")
    for setting, value in security.items():
        print(f"setting  {setting}={value}")
    print(f"file     {profile_file.path()}")


def _redacted(security: dict[str, str]) -> Iterator[tuple[str, str]]:
    from penstock.cli.terminal.redaction import REDACTED, is_secret

    for setting, value in sorted(security.items()):
        # A key file's path is not secret, but its name contains "key".
        is_hidden = is_secret(setting) and not setting.endswith(".location")
        yield setting, REDACTED if is_hidden else value


@profile.command("use")
@name_argument
def use_command(name: str) -> None:
    """Make a profile the current one, used by commands without --brokers.

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
    """Remove a profile with its password.

    \b
    penstock profile remove old --yes
    """
    profiles = profile_file.read()
    profiles.require(name)
    confirm(f"Remove profile {name}?", yes)
    del profiles.by_name[name]
    if profiles.current == name:
        profiles.current = None
    profile_file.write(profiles)
    print(f"removed profile {name}")
    if profiles.current is None and profiles.by_name:
        print("there is no current profile now; run `penstock profile use NAME`", file=sys.stderr)
