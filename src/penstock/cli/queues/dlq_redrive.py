"""`penstock dlq redrive` and `penstock dlq purge`: redrive or delete dead letters.

Both count the messages and ask for confirmation before they change anything; `--dry-run` stops
there. An interrupted command has settled some messages; running it again handles the rest.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.queues.dlq_arguments import (
    dead_letter_topic,
    document_of,
    filter_of,
    filter_options,
    show_data,
    topic_argument,
)
from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import OutputFormat, format_option, print_data, print_table
from penstock.cli.terminal.session import CommandSession, brokers_option, require_topics, run

if TYPE_CHECKING:
    from penstock.client.dead_letters.filters import DeadLetterFilter
    from penstock.client.dead_letters.message import DeadLetterMessage
    from penstock.client.dead_letters.redrive import RedriveReport, RedriveRequest
    from penstock.client.metadata import TopicPartition

PREVIEW_ROWS = 20

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show the plan.")
limit_option = click.option(
    "-n", "--limit", type=click.IntRange(min=1), help="At most this many messages."
)


@dataclass
class Preview:
    """Preview of a redrive or purge: the count, and the first messages."""

    count: int = 0
    messages: list[DeadLetterMessage] = field(default_factory=list)
    targets: dict[TopicPartition, int] = field(default_factory=dict)
    first_targets: list[TopicPartition | None] = field(default_factory=list)


@click.command("redrive")
@topic_argument
@filter_options
@click.option("--to", metavar="TOPIC", help="Send them to this topic instead of their source.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="At most this many messages per second.",
)
@limit_option
@click.option("--edit", is_flag=True, help="Edit the message's payload in $EDITOR first.")
@click.option("--payload", help="Replace the message's payload; @FILE reads a file.")
@click.option(
    "--keep-timestamp",
    is_flag=True,
    help="Keep the record's timestamp; the topic's retention applies to it.",
)
@dry_run_option
@yes_option
@brokers_option
@format_option
def redrive(
    topic: str,
    to: str | None,
    rate: float | None,
    limit: int | None,
    edit: bool,
    payload: str | None,
    keep_timestamp: bool,
    dry_run: bool,
    yes: bool,
    brokers: str,
    format: OutputFormat,
    **chosen: Any,
) -> None:
    """Send dead letters back to their source topics, each exactly once.

    Messages with the same key keep the order in which they were dead-lettered. A message that
    fails again becomes a new dead letter; `--redrives-max 0` skips messages redriven before.

    \b
    penstock dlq redrive orders.dlq --error 'Timeout*' --dry-run
    penstock dlq redrive orders.dlq --error 'Timeout*' --rate 100 --yes
    penstock dlq redrive orders.dlq --id 0:15 --edit
    penstock dlq redrive orders.dlq --to orders.quarantine
    """
    wanted = filter_of(**chosen)
    is_edited = edit or payload is not None
    if is_edited and (len(wanted.ids) != 1 or (edit and payload is not None)):
        raise UserError("--edit and --payload change one message: name it with --id P:OFFSET")

    async def work(session: CommandSession) -> tuple[Preview, RedriveReport | None]:
        from penstock.client.dead_letters.redrive import RedriveRequest

        name = await dead_letter_topic(session, topic)
        if to is not None:
            await require_topics(session, [to])
        preview = await _preview(session, name, wanted, to, limit)
        if dry_run or not preview.count:
            return preview, None
        new_payload = _revised(preview.messages[0], edit, payload) if is_edited else None
        confirm(f"Send {_messages(preview.count)} of {name} {_destination(preview)}?", yes)
        request = RedriveRequest(
            topic=name,
            run=run_id(session),
            who=who(),
            chosen=wanted,
            to=to,
            keeps_timestamp=keep_timestamp,
            rate_per_s=rate,
            limit=limit,
            revise=_reviser(new_payload) if is_edited else None,
        )
        return preview, await carry_out(session, request, preview.count)

    preview, report = run(brokers, work)
    _print_outcome("redriven", preview, report, format, is_dry=dry_run)


@click.command("purge")
@topic_argument
@filter_options
@limit_option
@click.option("--all", "every", is_flag=True, help="All messages; required without filters.")
@click.option("--keep-records", is_flag=True, help="Settle the messages but keep them in the log.")
@dry_run_option
@yes_option
@brokers_option
@format_option
def purge(
    topic: str,
    limit: int | None,
    every: bool,
    keep_records: bool,
    dry_run: bool,
    yes: bool,
    brokers: str,
    format: OutputFormat,
    **chosen: Any,
) -> None:
    """Settle dead letters without redriving them, and delete them from the log where possible.

    A log is deleted from its start: messages behind one that is still open stay on disk until that
    one is settled, too, or the topic's retention deletes them.

    \b
    penstock dlq purge orders.dlq --error ValueError --failed @:-30d
    penstock dlq purge orders.dlq --all --yes
    """
    wanted = filter_of(**chosen)
    if not every and not wanted.described() and limit is None:
        raise UserError("no filter given: pass --all to purge all messages, or filters")

    async def work(session: CommandSession) -> tuple[Preview, RedriveReport | None]:
        from penstock.client.dead_letters.redrive import RedriveRequest

        name = await dead_letter_topic(session, topic)
        preview = await _preview(session, name, wanted, None, limit, purges=True)
        if dry_run or not preview.count:
            return preview, None
        confirm(f"Purge {_messages(preview.count)} of {name} permanently?", yes)
        request = RedriveRequest(
            topic=name,
            run=run_id(session),
            who=who(),
            chosen=wanted,
            purges=True,
            limit=limit,
        )
        report = await carry_out(session, request, preview.count)
        if not keep_records:
            await _delete_settled(session, name)
        return preview, report

    preview, report = run(brokers, work)
    _print_outcome("purged", preview, report, format, is_dry=dry_run)


# -- preview -----------------------------------------------------------------------------------


async def _preview(
    session: CommandSession,
    topic: str,
    wanted: DeadLetterFilter,
    to: str | None,
    limit: int | None,
    *,
    purges: bool = False,
) -> Preview:
    from penstock.cli.terminal.progress import Progress
    from penstock.client.dead_letters.open_messages import open_dead_letters
    from penstock.client.dead_letters.redrive import target_partition

    preview = Preview()
    with Progress(f"reading {topic}", unit="messages") as progress:
        async with aclosing(open_dead_letters(session.cluster, topic, wanted)) as messages:
            async for message in messages:
                if limit is not None and preview.count >= limit:
                    break
                target = None if purges else await target_partition(session.cluster, message, to)
                preview.count += 1
                if target is not None:
                    preview.targets[target] = preview.targets.get(target, 0) + 1
                if len(preview.messages) < PREVIEW_ROWS:
                    preview.messages.append(message)
                    preview.first_targets.append(target)
                progress.advance()
    return preview


def _revised(message: DeadLetterMessage, edit: bool, payload: str | None) -> bytes:
    if not edit:
        assert payload is not None
        if payload.startswith("@"):
            with open(payload[1:], "rb") as file:
                return file.read()
        return payload.encode()
    try:
        before = (message.payload or b"").decode()
    except UnicodeDecodeError:
        raise UserError("the payload is not UTF-8: use --payload @FILE instead of --edit") from None
    after = click.edit(before, extension=".json" if before.lstrip()[:1] in "{[" else ".txt")
    if after is None:
        raise UserError("the payload was not changed: nothing was sent")
    # Editors add a newline at the end; it is removed if the payload had none.
    return (after if before.endswith("\n") else after.removesuffix("\n")).encode()


def _reviser(payload: bytes | None) -> Any:
    from dataclasses import replace

    return lambda message: replace(message, payload=payload)


def _destination(preview: Preview) -> str:
    topics = sorted({target.topic for target in preview.targets})
    return "to " + ", ".join(topics[:5]) + (", ..." if len(topics) > 5 else "")


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def run_id(session: CommandSession) -> str:
    return session.random.random_bytes(6).hex()


def who() -> str:
    """Returns the user at this terminal as user@host."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


# -- execution ---------------------------------------------------------------------------------


async def carry_out(
    session: CommandSession, request: RedriveRequest, expected: int
) -> RedriveReport:
    from penstock.cli.terminal.progress import Progress
    from penstock.client.dead_letters.redrive import Redriver

    title = f"{'purging' if request.purges else 'redriving'} {request.topic}"
    with Progress(title, expected, "messages") as progress:
        return await Redriver(session.cluster, session.clock, request, progress.advance).run()


async def _delete_settled(session: CommandSession, topic: str) -> None:
    """Deletes the records before the first open message of each partition."""
    from penstock.client.admin.admin import Admin
    from penstock.client.admin.queues import inspect
    from penstock.client.dead_letters.open_messages import DEAD_LETTERS
    from penstock.client.list_offsets import partitions_of

    places = await partitions_of(session.cluster, topic)
    reports = await inspect(session.cluster, DEAD_LETTERS, places)
    before = {
        where: report.start_offset
        for where, report in reports.items()
        if report.start_offset > report.log_start_offset
    }
    if before:
        await Admin(session.cluster).delete_records(before)


# -- output -----------------------------------------------------------------------------------


def _print_outcome(
    done: str, preview: Preview, report: RedriveReport | None, format: OutputFormat, *, is_dry: bool
) -> None:
    if format.is_data:
        targets = preview.targets if report is None else report.targets
        print_data(
            {
                "executed": report is not None,
                "letters": preview.count if report is None else report.settled,
                "skipped": 0 if report is None else report.skipped,
                "too_large": [] if report is None else list(report.too_large),
                "targets": [
                    {"topic": where.topic, "partition": where.partition, "letters": count}
                    for where, count in sorted(targets.items())
                ],
                "first": [document_of(message, is_whole=False) for message in preview.messages],
            },
            format,
        )
        return
    if report is not None:
        print(f"{done} {_messages(report.settled)}")
        for where, count in sorted(report.targets.items()):
            print(f"  {count:,} to {where}")
        if report.skipped:
            print(f"skipped {_messages(report.skipped)} whose record was lost: see `dlq list`")
        for name, why in report.too_large.items():
            print(f"skipped {name}: {why}")
        return
    if preview.count:
        _print_preview(preview)
    if is_dry:
        print(f"{_messages(preview.count)} would be {done}: this was a dry run")
    else:
        print("no open messages match")


def _print_preview(preview: Preview) -> None:
    rows = [
        (
            message.id,
            message.error_class or None,
            message.redrives,
            show_data(message.key, 30),
            None if target is None else str(target),
            show_data(message.payload, 40),
        )
        for message, target in zip(preview.messages, preview.first_targets, strict=True)
    ]
    print_table(["id", "error", "redrives ", "key", "to", "payload"], rows)
    if preview.count > len(rows):
        print(f"... and {preview.count - len(rows):,} more")
    for where, count in sorted(preview.targets.items()):
        print(f"{count:,} to {where}")
    print(flush=True)
