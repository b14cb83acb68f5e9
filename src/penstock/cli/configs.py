"""`penstock config`: the configs of a broker or of a topic, as the cluster answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from penstock.cli.errors import UserError
from penstock.cli.output import FORMAT, Format, print_json, print_table
from penstock.cli.session import BROKERS, Session, nearest, require_topics, run

if TYPE_CHECKING:
    from penstock.client.admin import ConfigEntry

app = typer.Typer(help="Look at the configs of brokers and topics.", no_args_is_help=True)

TOPIC_OPTION = typer.Option(None, "-t", "--topic", help="The configs of this topic.")
BROKER_OPTION = typer.Option(None, "--broker", help="The configs of this node [the first one].")


@app.command("list")
def list_configs(
    topic: str | None = TOPIC_OPTION,
    broker: int | None = BROKER_OPTION,
    changed: bool = typer.Option(False, "--changed", help="Only what is not at its default."),
    brokers: str = BROKERS,
    format: Format = FORMAT,
) -> None:
    """List configs with their values and where these come from."""
    entries = run(brokers, lambda session: _describe(session, topic, broker))
    if changed:
        entries = [entry for entry in entries if not entry.is_default]
    if format is Format.json:
        print_json([_as_dict(entry) for entry in entries])
        return
    print_table(["name", "value", "source"], [(e.name, _show(e), e.source) for e in entries])


@app.command("describe")
def describe_config(
    name: str = typer.Argument(..., help="The config, e.g. retention.ms."),
    topic: str | None = TOPIC_OPTION,
    broker: int | None = BROKER_OPTION,
    brokers: str = BROKERS,
    format: Format = FORMAT,
) -> None:
    """Explain one config: value, type, source, meaning."""
    entries = run(brokers, lambda session: _describe(session, topic, broker))
    entry = next((entry for entry in entries if entry.name == name), None)
    if entry is None:
        close = nearest(name, [entry.name for entry in entries])
        hint = f"did you mean {close!r}?" if close else "see `penstock config list`"
        what = f"topic {topic!r}" if topic else "the broker"
        raise UserError(f"{what} has no config {name!r}; {hint}")
    if format is Format.json:
        print_json(_as_dict(entry))
        return
    facts = [entry.kind, f"from {entry.source}"]
    facts += ["read-only"] if entry.is_read_only else []
    print(f"{entry.name} = {_show(entry)}\n  {', '.join(facts)}")
    if entry.documentation:
        print(f"  {entry.documentation}")


async def _describe(session: Session, topic: str | None, broker: int | None) -> list[ConfigEntry]:
    from penstock.client.admin import BROKER, TOPIC, Admin

    admin = Admin(session.cluster)
    if topic is not None:
        if broker is not None:
            raise UserError("--topic and --broker exclude each other")
        await require_topics(session, [topic])
        return await admin.describe_configs(TOPIC, topic, documented=True)
    known = sorted(session.cluster.metadata.brokers)
    if broker is not None and broker not in known:
        ids = ", ".join(map(str, known))
        raise UserError(f"there is no broker {broker}; the cluster has {ids}")
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
