"""`penstock wire`: supported Kafka APIs, and the generated code of their codecs.

The codecs are compiled from the message classes on first use; `show` prints that code.
"""

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import OutputFormat, format_option, print_listing
from penstock.cli.terminal.session import nearest


@click.group("wire", no_args_is_help=True)
def wire() -> None:
    """Inspect Penstock's implementation of the Kafka protocol."""


@wire.command("list")
@format_option
def list_messages(format: OutputFormat) -> None:
    """List the APIs with their versions.

    \b
    penstock wire list
    """
    from penstock.wire.messages import REQUESTS
    from penstock.wire.schema import wire_of

    rows = []
    for key, request in sorted(REQUESTS.items()):
        spec = wire_of(request)
        rows.append((key, spec.name.removesuffix("Request"), spec.versions, spec.flexible))
    print_listing(
        format,
        [
            {"key": key, "name": name, "versions": list(versions), "flexible": flexible}
            for key, name, versions, flexible in rows
        ],
        ["key ", "name", "versions", "flexible from"],
        [(key, name, f"{v[0]}-{v[1]}", flexible) for key, name, v, flexible in rows],
    )


@wire.command("show")
@click.argument("name", help="An API or message: Heartbeat, FetchRequest.")
@click.argument("version", type=int, required=False, help="The version [the newest].")
def show(name: str, version: int | None) -> None:
    """Print the generated code that reads and writes a message.

    \b
    penstock wire show Heartbeat 4
    """
    from penstock.wire.codec import source
    from penstock.wire.messages import REQUESTS, RESPONSES
    from penstock.wire.schema import wire_of

    known = {cls.__name__: cls for cls in (*REQUESTS.values(), *RESPONSES.values())}
    lower = {n.lower(): n for n in known}
    wanted = [
        known[lower[candidate]]
        for candidate in (name.lower(), f"{name.lower()}request", f"{name.lower()}response")
        if candidate in lower
    ]
    if not wanted:
        apis = {cls.__name__.removesuffix("Request") for cls in REQUESTS.values()}
        close = nearest(name, {*apis, *known})
        hint = f"did you mean {close}?" if close else "see `penstock wire list`"
        raise UserError(f"message {name!r} does not exist; {hint}")
    for index, cls in enumerate(wanted):
        first, last = wire_of(cls).versions
        chosen = last if version is None else version
        if not first <= chosen <= last:
            raise UserError(f"{cls.__name__} has versions {first}-{last}, not {chosen}")
        if index:
            print()
        print(f"# {cls.__name__} version {chosen}\n")
        print(source(cls, chosen).rstrip())
