"""`penstock job`: ready-made Spark jobs that write. Jobs that only report are in `job_reports`."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from penstock.cli.spark.job_reports import audit, skew, triage
from penstock.cli.spark.session import job_session, spark_cluster, spark_options
from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    show_bytes,
    show_count,
)
from penstock.cli.terminal.progress import Progress
from penstock.cli.terminal.session import CommandSession, brokers_option, require_topics, run
from penstock.cli.terminal.time_ranges import parse_times


@click.group("job", no_args_is_help=True)
def job() -> None:
    """Run ready-made Spark jobs: archive, replay, audit and more."""


job.add_command(audit)
job.add_command(skew)
job.add_command(triage)


# -- archive ----------------------------------------------------------------------------------


@job.command("archive")
@click.argument("topics", nargs=-1, required=True, help="Topics to archive.")
@click.option("--to", "root", required=True, metavar="FOLDER", help="The archive's folder.")
@click.option(
    "--to-format",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="File format; delta and iceberg need penstock-mq[lakehouse].",
)
@click.option(
    "--rows-per-file",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="At most this many records per file.",
)
@click.option(
    "--merge-mib",
    type=click.IntRange(min=0),
    default=128,
    show_default=True,
    help="Merge small files into files of about this size; 0 disables it.",
)
@click.option(
    "--allow-loss",
    is_flag=True,
    help="Continue although records were deleted from the topic before they were archived.",
)
@spark_options
@brokers_option
@format_option
def archive(
    topics: tuple[str, ...],
    root: str,
    to_format: str,
    rows_per_file: int,
    merge_mib: int,
    allow_loss: bool,
    brokers: str,
    format: OutputFormat,
    **spark_at: Any,
) -> None:
    """Copy the records since the last run to files partitioned by day, each record once.

    \b
    penstock job archive orders --to /data/archive
    penstock job archive orders payments --to s3://bucket/archive --master spark://spark:7077
    """
    waiting = run(brokers, lambda session: _existing(session, topics))
    from penstock.jobs.archive import archive_topics

    with (
        job_session("archive", **spark_at) as spark,
        Progress(f"archiving {', '.join(topics)}", waiting or None) as progress,
    ):
        done = archive_topics(
            spark,
            cluster=spark_cluster(brokers),
            topics=topics,
            root=_place(root),
            format=to_format,
            rows_per_file=rows_per_file,
            merged_bytes=merge_mib << 20,
            allows_loss=allow_loss,
            on_progress=progress.advance,
        )
    if format.is_data:
        print_data(done.document(), format)
        return
    merged = f", {show_count(done.merged)} small files merged" if done.merged else ""
    print(
        f"{show_count(done.rows)} records in {show_count(done.files)} files, "
        f"{show_bytes(done.bytes)}{merged}"
    )


async def _existing(session: CommandSession, topics: tuple[str, ...]) -> int:
    """Refuses missing topics; returns the number of records to archive."""
    from penstock.client.consumer.record_counts import count_unread

    await require_topics(session, topics)
    return await count_unread(session.cluster, f"archive.{'-'.join(sorted(topics))}", topics)


# -- replay -----------------------------------------------------------------------------------


@job.command("replay")
@click.argument("root", metavar="FOLDER", help="The archive's folder.")
@click.argument("topic", help="The topic in the archive.")
@click.option("--to", required=True, metavar="TOPIC", help="The target topic.")
@click.option("--time", "times", metavar="@-2h:-1h", help="Only this time range: @2026-11-01:1d.")
@click.option("-k", "--key", help="Only this key.")
@click.option(
    "--where", metavar="SQL", help="Only records that satisfy this; key and value are text."
)
@click.option(
    "--name",
    help="Name of this replay: a repeated run with it writes only what is missing.",
)
@yes_option
@spark_options
@brokers_option
@format_option
def replay(
    root: str,
    topic: str,
    to: str,
    times: str | None,
    key: str | None,
    where: str | None,
    name: str | None,
    yes: bool,
    brokers: str,
    format: OutputFormat,
    **spark_at: Any,
) -> None:
    """Write records of an archive to a topic, with keys, headers, timestamps and order.

    \b
    penstock job replay /data/archive orders --to orders.again --time @2026-11-01:1d --yes
    penstock job replay /data/archive orders --to orders --key c1 --where "value like '%refund%'"
    """
    from_ms, until_ms = parse_times("--time", times)

    async def look(session: CommandSession) -> int:
        await require_topics(session, [to])
        return len((await session.cluster.topic(to)).partitions)

    partitions = run(brokers, look)
    from penstock.jobs.replay import RecordFilter, replay_archive

    with job_session("replay", **spark_at) as spark:
        count = replay_archive(
            spark,
            cluster=spark_cluster(brokers),
            root=_place(root),
            topic=topic,
            to=to,
            partitions=partitions,
            choice=RecordFilter(from_ms, until_ms, key, where),
            name=name,
            approve=lambda count: confirm(f"Write {show_count(count)} records to {to}?", yes),
        )
    if format.is_data:
        print_data({"records": count, "to": to}, format)
    else:
        print(f"{show_count(count)} records of {topic} written to {to}")


# -- tables and state -------------------------------------------------------------------------


@job.command("cdc")
@click.argument("topic", help="A topic of change events, or of an outbox.")
@click.option("--to", "path", required=True, metavar="FOLDER", help="The table's folder.")
@click.option(
    "--schema", required=True, metavar="DDL", help="The table's columns: 'id int, name string'."
)
@click.option(
    "--ties",
    type=click.Choice(["fail", "higher-partition"]),
    default="fail",
    show_default=True,
    help="For a key with equal timestamps and different values in two partitions.",
)
@spark_options
@brokers_option
@format_option
def cdc(
    topic: str,
    path: str,
    schema: str,
    ties: str,
    brokers: str,
    format: OutputFormat,
    **spark_at: Any,
) -> None:
    """Apply change events to a Parquet table that holds the latest row of every key.

    Values are rows as JSON, or Debezium's envelope; a tombstone, or op d, deletes the row.

    \b
    penstock job cdc shop.customers --to /data/customers --schema 'id int, name string'
    """

    async def look(session: CommandSession) -> dict[str, int]:
        from penstock.client.consumer.fetched import READ_COMMITTED
        from penstock.client.list_offsets import LATEST, list_offsets, partitions_of

        await require_topics(session, [topic])
        asked = dict.fromkeys(await partitions_of(session.cluster, topic), LATEST)
        found = await list_offsets(session.cluster, asked, isolation_level=READ_COMMITTED)
        return {str(where.partition): one.offset for where, one in sorted(found.items())}

    ends = run(brokers, look)
    from penstock.jobs.cdc import apply_changes

    with job_session("cdc", **spark_at) as spark:
        done = apply_changes(
            spark,
            cluster=spark_cluster(brokers),
            topic=topic,
            schema=schema,
            path=_place(path),
            ends=ends,
            ties=ties,
        )
    if format.is_data:
        print_data(done.document(), format)
    else:
        print(
            f"{show_count(done.events - done.left_out)} events applied, {show_count(done.rows)} "
            f"rows in {done.path}"
        )
    if done.left_out:
        print(
            f"{show_count(done.left_out)} events skipped: not rows of this schema, or without a "
            f"key; for example {', '.join(done.samples)} (partition/offset)",
            file=sys.stderr,
        )


@job.command("event-sourcing")
@click.argument("topic", metavar="TOPIC", help="The events: a topic, or archive:FOLDER:TOPIC.")
@click.option(
    "--to", "path", required=True, metavar="FOLDER", help="Folder for the states, as Parquet."
)
@click.option("--at", "moment", metavar="TIME", help="As of this time: -1h, 2026-11-01.")
@click.option(
    "--fold",
    "fold_name",
    metavar="MODULE:FUNCTION",
    help="A function fold(state, event) -> state; without it later fields win.",
)
@spark_options
@brokers_option
@format_option
def event_sourcing(
    topic: str,
    path: str,
    moment: str | None,
    fold_name: str | None,
    brokers: str,
    format: OutputFormat,
    **spark_at: Any,
) -> None:
    """Rebuild the state of every key from its events, as of a time.

    \b
    penstock job event-sourcing accounts --to /data/accounts --at 2026-11-01
    penstock job event-sourcing accounts --to /data/accounts --fold bank:apply
    """
    from penstock.jobs.event_sourcing import merge_fields, rebuild
    from penstock.jobs.inputs import parse_input

    _, until_ms = parse_times("--at", None if moment is None else f"@:{moment}")
    side = parse_input(topic)
    if side.archive is None:
        run(brokers, lambda session: require_topics(session, [side.topic]))
    fold = merge_fields if fold_name is None else _function(fold_name)
    with job_session("event-sourcing", **spark_at) as spark:
        states = rebuild(
            spark, cluster=spark_cluster(brokers), side=side, fold=fold, until_ms=until_ms
        )
        states.write.mode("overwrite").parquet(_place(path))
        count = int(spark.read.parquet(_place(path)).count())
    if format.is_data:
        print_data({"keys": count, "path": path}, format)
    else:
        print(f"states of {show_count(count)} keys in {path}")


def _function(name: str) -> Any:
    module_name, _, function = name.partition(":")
    if not module_name or not function:
        raise UserError(f"{name!r} is not MODULE:FUNCTION, like bank:apply")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(f"no module {error.name!r} in this directory or on the path") from None
    found = getattr(module, function, None)
    if not callable(found):
        raise UserError(f"module {module_name!r} has no function {function!r}")
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    return found


def _place(folder: str) -> str:
    return folder if "://" in folder else os.path.abspath(folder)
