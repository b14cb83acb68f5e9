"""`penstock quota`: lists, sets and removes quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import OutputFormat, format_option, print_listing
from penstock.cli.terminal.session import CommandSession, brokers_option, run
from penstock.security.quotas import DEFAULT, Entity, EntityName, QuotaKind

Command = TypeVar("Command", bound=Callable[..., Any])
KINDS = ", ".join(QuotaKind)


def entity_options(command: Command) -> Command:
    """Adds the options that name a quota's user, client id or address."""
    for word, what in (("ip", "address"), ("client-id", "client id"), ("user", "user")):
        name = word.replace("-", "_")
        command = click.option(
            f"--{word}-default",
            f"{name}_default",
            is_flag=True,
            help=f"Default for every other {what}.",
        )(command)
        command = click.option(f"--{word}", name, help=f"This {what}.")(command)
    return command


def _name(what: str, name: str | None, is_default: bool) -> EntityName:
    if name is not None and is_default:
        raise UserError(f"--{what} and --{what}-default are two quotas; use two commands")
    return DEFAULT if is_default else name


def _entity(options: dict[str, Any]) -> Entity:
    entity = Entity(
        *(
            _name(word, options[name], options[f"{name}_default"])
            for word, name in (("user", "user"), ("client-id", "client_id"), ("ip", "ip"))
        )
    )
    if entity == Entity():
        raise UserError("no entity given: pass --user, --client-id, both, or --ip (or a -default)")
    return entity


def _show(entity: Entity) -> str:
    return ", ".join(f"{kind} {name!r}" for kind, name in entity.parts())


def _kind(text: str) -> str:
    try:
        return QuotaKind(text)
    except ValueError:
        raise UserError(f"{text!r} is not a quota; use one of {KINDS}") from None


@click.group("quota", no_args_is_help=True)
def quota() -> None:
    """Limit the rates of users, clients and addresses."""


@quota.command("list")
@brokers_option
@format_option
def list_command(brokers: str, format: OutputFormat) -> None:
    """List quotas.

    \b
    penstock quota list
    """

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import ClientQuotas

        rows = [
            {
                **{str(kind): repr(DEFAULT) if name is DEFAULT else name for kind, name in parts},
                "quota": key,
                "value": value,
            }
            for one in await ClientQuotas(session.cluster).list()
            for parts in [one.entity.parts()]
            for key, value in sorted(one.values.items())
        ]
        columns = ("user", "client-id", "ip", "quota", "value")
        cells = [[row.get(column, "") for column in columns] for row in rows]
        print_listing(format, rows, columns, cells)

    run(brokers, work)


@quota.command("set")
@click.argument(
    "values", nargs=-1, required=True, metavar="NAME=VALUE...", help=f"Quotas: {KINDS}."
)
@entity_options
@brokers_option
def set_command(values: tuple[str, ...], brokers: str, **options: Any) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    Rates apply per node and second: bytes, created or deleted partitions, new connections;
    request_percentage is a share of a node's CPU time.

    \b
    penstock quota set --user alice producer_byte_rate=1048576
    penstock quota set --user-default consumer_byte_rate=5000000 request_percentage=20
    penstock quota set --ip-default connection_creation_rate=50
    """
    entity = _entity(options)
    wanted: dict[str, float | None] = {}
    for text in values:
        name, separator, number = text.partition("=")
        try:
            wanted[_kind(name)] = float(number)
        except ValueError:
            what = number if separator else text
            raise UserError(f"{what!r} is not a number; write {name}=1000") from None

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import ClientQuotas

        await ClientQuotas(session.cluster).alter(entity, wanted)
        print(f"set {', '.join(wanted)} for {_show(entity)}")

    run(brokers, work)


@quota.command("remove")
@click.argument("names", nargs=-1, help="The quotas to remove [all].")
@entity_options
@yes_option
@brokers_option
def remove_command(names: tuple[str, ...], yes: bool, brokers: str, **options: Any) -> None:
    """Remove quotas.

    \b
    penstock quota remove --user alice producer_byte_rate
    penstock quota remove --ip-default
    """
    entity = _entity(options)
    chosen = [_kind(name) for name in names]

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import ClientQuotas

        quotas = ClientQuotas(session.cluster)
        known = {one.entity: one.values for one in await quotas.list()}
        gone = [name for name in known.get(entity, {}) if not chosen or name in chosen]
        if not gone:
            raise UserError(f"{_show(entity)} has no such quota; see `penstock quota list`")
        confirm(f"Remove {', '.join(sorted(gone))} of {_show(entity)}?", yes)
        await quotas.alter(entity, dict.fromkeys(gone))
        print(f"removed {', '.join(sorted(gone))} of {_show(entity)}")

    run(brokers, work)
