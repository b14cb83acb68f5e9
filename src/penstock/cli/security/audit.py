"""`penstock audit`: searches the audit log of administrative and denied actions."""

from __future__ import annotations

import fnmatch
from collections import deque
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import OutputFormat, format_option, print_listing, show_time
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.security.audit_entries import AuditEntry

COLUMNS = ("time", "who", "from", "endpoint", "action", "outcome", "resources")


@click.command("audit", short_help="Show administrative and denied actions.")
@click.option("--principal", metavar="NAME", help="Only this principal, e.g. User:ann.")
@click.option("--action", metavar="PATTERN", help="Only matching actions: DeleteTopics, 'POST *'.")
@click.option(
    "--resource", metavar="PATTERN", help="Only matching resources: topic:orders, 'topic:*'."
)
@click.option(
    "--outcome", type=click.Choice(["done", "denied", "failed"]), help="Only this outcome."
)
@click.option(
    "--endpoint",
    metavar="NAME",
    help="Only this endpoint: kafka, http, console, sqs, sns, registry.",
)
@click.option("--door", "former_endpoint", hidden=True, help="Now --endpoint.")
@click.option("--since", metavar="AGO", help="Only entries this recent: 15m, 24h, 7d.")
@click.option(
    "-n", "--last", type=int, default=100, show_default=True, help="At most this many entries."
)
@brokers_option
@format_option
def audit(
    principal: str | None,
    action: str | None,
    resource: str | None,
    outcome: str | None,
    endpoint: str | None,
    former_endpoint: str | None,
    since: str | None,
    last: int,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Show administrative and denied actions from the audit log.

    Brokers write the audit log if they enforce ACLs, or with audit.enable=true. Its topic is
    __audit; `penstock consume __audit` follows it. Both need permission to read that topic.

    \b
    penstock audit --since 24h --outcome denied
    penstock audit --resource topic:orders --format json
    """
    if last < 1:
        raise UserError(f"--last {last} is below 1; pass the number of entries to show")

    endpoint = endpoint or former_endpoint

    def fits(entry: AuditEntry) -> bool:
        return (
            (principal is None or entry.principal in (principal, f"User:{principal}"))
            and (action is None or fnmatch.fnmatchcase(entry.action, action))
            and (outcome is None or entry.outcome == outcome)
            and (endpoint is None or entry.door == endpoint)
            and (resource is None or _is_about(entry, resource))
        )

    entries = run(brokers, lambda session: _read(session, since, fits, last))
    import msgspec

    document = [msgspec.to_builtins(entry) for entry in entries]
    print_listing(format, document, COLUMNS, [_row(entry) for entry in entries])


def _is_about(entry: AuditEntry, pattern: str) -> bool:
    return any(
        fnmatch.fnmatchcase(part, pattern)
        for resource in entry.resources
        for part in (resource, resource.partition(" ")[0])
    )


async def _read(
    session: CommandSession, since: str | None, fits: Callable[[AuditEntry], bool], last: int
) -> list[AuditEntry]:
    """Reads the topic up to its current end."""
    import msgspec

    from penstock.base.errors import Refused
    from penstock.cli.terminal.progress import Progress
    from penstock.client.admin.admin import Admin
    from penstock.client.consumer.consumer import ConsumerConfig
    from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
    from penstock.client.metadata import TopicPartition
    from penstock.security.audit_entries import ENTRY

    where = TopicPartition("__audit", 0)
    try:
        await Admin(session.cluster).describe_topics([where.topic])
    except Refused:
        raise UserError(
            "there is no audit log yet, or you have no permission to read it; brokers write it if "
            "they enforce ACLs, or with --set audit.enable=true"
        ) from None
    found: deque[AuditEntry] = deque(maxlen=last)
    begin = EARLIEST if since is None else session.clock.now_ms() - _milliseconds(since)
    start = (await list_offsets(session.cluster, {where: begin}))[where].offset
    end = (await list_offsets(session.cluster, {where: LATEST}))[where].offset
    if start < 0 or start >= end:
        return []
    consumer = session.consumer(ConsumerConfig())
    async with consumer:
        consumer.assign({where: start})
        with Progress("reading the audit log", end - start, "entries") as progress:
            while start < end:
                for message in await consumer.poll():
                    start = message.offset + 1
                    progress.advance()
                    try:
                        entry = ENTRY.decode(message.value or b"")
                    except msgspec.MsgspecError:
                        continue
                    if fits(entry):
                        found.append(entry)
    return list(found)


def _milliseconds(text: str) -> int:
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    number, unit = text[:-1], text[-1:]
    if unit not in units or not number.isdecimal():
        raise UserError(f"--since {text!r} is not a duration; write s, m, h or d, such as 24h")
    return int(number) * units[unit]


def _row(entry: AuditEntry) -> tuple[str, ...]:
    about = ", ".join(entry.resources)
    if entry.more_resources:
        about += f" and {entry.more_resources} more"
    if entry.codes:
        about += f" ({', '.join(entry.codes)})"
    if entry.suppressed:
        about += f" [{entry.suppressed} more like this]"
    return (
        show_time(entry.time_ms),
        entry.principal,
        entry.peer,
        entry.door,
        entry.action,
        entry.outcome,
        about,
    )
