"""`penstock config`: shows configs of brokers, topics and groups, and changes those of brokers.

`topic alter` and `group alter` change the configs of topics and groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import broker_config_names, group_names, topic_names
from penstock.cli.terminal.output import OutputFormat, format_option, print_data, print_listing
from penstock.cli.terminal.session import (
    CommandSession,
    brokers_option,
    nearest,
    require_topics,
    run,
)

if TYPE_CHECKING:
    from penstock.client.admin.admin import ConfigEntry

F = TypeVar("F", bound=Callable[..., Any])

topic_option = click.option(
    "-t", "--topic", help="Show this topic's configs.", shell_complete=topic_names
)
group_option = click.option(
    "-g", "--group", help="Show this group's configs.", shell_complete=group_names
)
broker_option = click.option("--broker", type=int, help="Show this node's configs [the first].")


only_broker_option = click.option("--broker", type=int, help="Only for this node [all].")


@click.group("config", no_args_is_help=True)
def config() -> None:
    """Show configs; change broker configs at runtime."""


def change_options(names: Callable[..., list[str]]) -> Callable[[F], F]:
    """Adds -c and -d to a command that changes configs; `names` completes them."""

    def add(command: F) -> F:
        set_option = click.option(
            "-c",
            "--config",
            "configs",
            multiple=True,
            metavar="NAME=VALUE",
            shell_complete=names,
            help="Set a config; repeatable.",
        )
        delete_option = click.option(
            "-d",
            "--delete-config",
            "deletes",
            multiple=True,
            metavar="NAME",
            shell_complete=names,
            help="Reset a config to its default; repeatable.",
        )
        return set_option(delete_option(command))

    return add


def show_changes(pairs: Mapping[str, str], deletes: Iterable[str]) -> str:
    changes = [f"{key}={value}" for key, value in sorted(pairs.items())]
    return ", ".join([*changes, *(f"{key} reset to its default" for key in deletes)])


@config.command("list")
@topic_option
@group_option
@broker_option
@click.option("--changed", is_flag=True, help="Only configs that differ from their defaults.")
@brokers_option
@format_option
def list_configs(
    topic: str | None,
    group: str | None,
    broker: int | None,
    changed: bool,
    brokers: str,
    format: OutputFormat,
) -> None:
    """List configs with their values and the sources of these.

    \b
    penstock config list --changed
    penstock config list -t orders --format wide
    penstock config list -g workers
    """
    entries = run(brokers, lambda session: _describe(session, topic, group, broker))
    if changed:
        entries = [entry for entry in entries if not entry.is_default]
    print_listing(
        format,
        [_as_dict(entry) for entry in entries],
        ["name", "value", "source", "+type", "+read-only", "+meaning"],
        [
            (
                e.name,
                _show(e),
                e.source,
                e.kind,
                e.is_read_only,
                " ".join((e.documentation or "").split()),
            )
            for e in entries
        ],
    )


@config.command("describe")
@click.argument("name", help="The config, e.g. retention.ms.")
@topic_option
@group_option
@broker_option
@brokers_option
@format_option
def describe_config(
    name: str,
    topic: str | None,
    group: str | None,
    broker: int | None,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Explain a config: value, type, source, meaning.

    \b
    penstock config describe retention.ms -t orders
    penstock config describe num.partitions
    penstock config describe share.delivery.count.limit -g workers
    """
    entries = run(brokers, lambda session: _describe(session, topic, group, broker))
    entry = next((entry for entry in entries if entry.name == name), None)
    if entry is None:
        what = f"topic {topic!r}" if topic else f"group {group!r}" if group else "the broker"
        raise _unknown(what, name, [entry.name for entry in entries])
    if format.is_data:
        print_data(_as_dict(entry), format)
        return
    facts = [entry.kind, f"from {entry.source}"]
    facts += ["read-only"] if entry.is_read_only else []
    print(f"{entry.name} = {_show(entry)}\n  {', '.join(facts)}")
    if entry.documentation:
        print(f"  {entry.documentation}")


@config.command("set")
@click.argument(
    "settings",
    nargs=-1,
    required=True,
    metavar="NAME=VALUE...",
    help="Configs and values.",
    shell_complete=broker_config_names,
)
@only_broker_option
@brokers_option
def set_configs(settings: tuple[str, ...], broker: int | None, brokers: str) -> None:
    """Change configs of all brokers, or of one, at runtime; the changes survive restarts.

    \b
    penstock config set log.retention.ms=86400000
    penstock config set max.connections=500 --broker 2
    """
    pairs = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UserError(f"{text!r} is not a setting; write name=value")
        pairs[name.strip()] = value.strip()
    run(brokers, lambda session: _change(session, broker, pairs, ()))
    print(f"changed {_whose(broker)}: {show_changes(pairs, ())}")


@config.command("unset")
@click.argument(
    "names",
    nargs=-1,
    required=True,
    help="Configs to unset.",
    shell_complete=broker_config_names,
)
@only_broker_option
@brokers_option
def unset_configs(names: tuple[str, ...], broker: int | None, brokers: str) -> None:
    """Remove configs set at runtime: the values from the start of the brokers apply again.

    \b
    penstock config unset log.retention.ms
    penstock config unset max.connections --broker 2
    """
    run(brokers, lambda session: _change(session, broker, {}, names))
    print(f"changed {_whose(broker)}: {', '.join(names)} reset to the value at the start")


async def _change(
    session: CommandSession, broker: int | None, pairs: Mapping[str, str], deletes: Sequence[str]
) -> None:
    from penstock.client.admin.admin import BROKER, Admin

    entries = {entry.name: entry for entry in await _describe(session, None, None, broker)}
    for name in (*pairs, *deletes):
        if name not in entries:
            raise _unknown("the broker", name, entries)
        if entries[name].is_read_only:
            raise UserError(
                f"{name} cannot be changed at runtime; start the broker with `penstock up --set "
                f"{name}=...`, or set it in its config file"
            )
    resource = "" if broker is None else str(broker)
    await Admin(session.cluster).alter_configs(BROKER, resource, pairs, deletes)


def _whose(broker: int | None) -> str:
    return "all brokers" if broker is None else f"broker {broker}"


def _unknown(what: str, name: str, known: Iterable[str]) -> UserError:
    close = nearest(name, known)
    hint = f"did you mean {close!r}?" if close else "see `penstock config list`"
    return UserError(f"{what} has no config {name!r}; {hint}")


async def _describe(
    session: CommandSession, topic: str | None, group: str | None, broker: int | None
) -> list[ConfigEntry]:
    from penstock.client.admin.admin import BROKER, GROUP_CONFIGS, TOPIC, Admin

    admin = Admin(session.cluster)
    if sum(given is not None for given in (topic, group, broker)) > 1:
        raise UserError("use only one of --topic, --group and --broker")
    if group is not None:
        return await admin.describe_configs(GROUP_CONFIGS, group, documented=True)
    if topic is not None:
        await require_topics(session, [topic])
        return await admin.describe_configs(TOPIC, topic, documented=True)
    known = sorted(session.cluster.metadata.brokers)
    if broker is not None and broker not in known:
        ids = ", ".join(map(str, known))
        raise UserError(f"broker {broker} does not exist; the cluster has {ids}")
    name = str(known[0] if broker is None else broker)
    return await admin.describe_configs(BROKER, name, documented=True)


def _show(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "-" if entry.value is None else entry.value


def _as_dict(entry: ConfigEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source,
        "type": entry.kind,
        "default": entry.is_default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "documentation": entry.documentation,
    }
