"""`penstock dlq history`: past redrives and purges, from the topic that records them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.queues.dlq_arguments import dead_letter_topic
from penstock.cli.terminal.name_completion import dead_letter_topic_names
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    print_table,
    show_time,
)
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.list_offsets import OffsetSpan
    from penstock.client.metadata import TopicPartition

HISTORY_MAX = 100_000


@click.command("history")
@click.argument(
    "topic",
    required=False,
    shell_complete=dead_letter_topic_names,
    help="Only this dead-letter topic.",
)
@brokers_option
@format_option
def history(topic: str | None, brokers: str, format: OutputFormat) -> None:
    """Show past redrives, edits and purges: time, user, number of messages, filter.

    \b
    penstock dlq history
    penstock dlq history orders.dlq --format json
    """

    async def work(session: CommandSession) -> list[dict[str, Any]]:
        name = None if topic is None else await dead_letter_topic(session, topic)
        return [entry async for entry in _entries(session) if name in (None, entry["topic"])]

    runs: dict[str, dict[str, Any]] = {}
    for entry in run(brokers, work):
        known = runs.setdefault(entry["run"], {**entry, "count": 0, "letters": []})
        known["count"] += entry["count"]
        known["letters"] += [[entry["partition"], *run_] for run_ in entry["letters"]]
        known["until_ms"] = entry["at_ms"]
    found = [{k: v for k, v in one.items() if k != "partition"} for one in runs.values()]
    if format.is_data:
        print_data(found, format)
        return
    rows = [
        (
            show_time(one["at_ms"]),
            one["action"],
            one["topic"],
            one["count"],
            one["to"],
            json.dumps(one["filter"], ensure_ascii=False) if one["filter"] else None,
            one["who"],
            one["run"],
        )
        for one in found
    ]
    print_table(["at", "action", "topic", "messages ", "to", "filter", "who", "run"], rows)


async def _entries(session: CommandSession) -> AsyncIterator[dict[str, Any]]:
    from penstock.base.errors import ErrorCode, Refused
    from penstock.client.consumer.consumer import ConsumerConfig
    from penstock.client.consumer.fetched import READ_COMMITTED
    from penstock.client.dead_letters.redrive import AUDIT
    from penstock.client.list_offsets import partitions_of, resolve
    from penstock.client.offset_syntax import END, START, OffsetRange

    try:
        places = await partitions_of(session.cluster, AUDIT)
    except Refused as refused:
        if refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return  # No message was ever redriven or purged.
        raise
    spans = await resolve(session.cluster, places, OffsetRange(START, END), must_end=True)
    count = 0
    async with session.consumer(ConsumerConfig(isolation_level=READ_COMMITTED)) as consumer:
        consumer.assign(
            {w: span.start for w, span in spans.items() if span.start < (span.end or 0)}
        )
        while consumer.positions:
            for message in await consumer.poll():
                try:
                    yield json.loads(message.value or b"")
                except ValueError:
                    continue  # Not written by Penstock.
                count += 1
            _drop_finished(consumer, spans)
            if count >= HISTORY_MAX:
                print(f"showing the first {HISTORY_MAX:,} entries", file=sys.stderr)
                return


def _drop_finished(consumer: Consumer, spans: dict[TopicPartition, OffsetSpan]) -> None:
    for where, position in list(consumer.positions.items()):
        if position >= (spans[where].end or 0):
            consumer.unassign(where)
