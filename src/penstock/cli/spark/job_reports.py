"""`penstock job audit`, `skew` and `dlq-triage`: Spark jobs that analyse topics and report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.queues.dlq_arguments import dead_letter_topic
from penstock.cli.queues.dlq_redrive import carry_out, run_id, who
from penstock.cli.spark.session import job_session, spark_cluster, spark_options
from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    print_table,
    show_count,
)
from penstock.cli.terminal.session import CommandSession, brokers_option, require_topics, run
from penstock.cli.terminal.time_ranges import parse_times

if TYPE_CHECKING:
    from penstock.client.dead_letters.filters import DeadLetterFilter
    from penstock.client.dead_letters.redrive import RedriveReport
    from penstock.jobs.skew import Skew
    from penstock.jobs.triage import Runs

report_option = click.option(
    "--report", metavar="FILE", help="Write a report with charts: .html or .md."
)


# -- audit ------------------------------------------------------------------------------------


@click.command("audit")
@click.argument("left", help="The source: a topic, or archive:FOLDER:TOPIC.")
@click.argument("right", help="The result: a topic, or archive:FOLDER:TOPIC.")
@click.option(
    "--id",
    "identity",
    metavar="SQL",
    help="Identity of a record on both sides: place, message_id, content, or an SQL "
    "expression such as get_json_object(value, '$.id'); key and value are text. "
    "[default: place for an archive of the topic, else content]",
)
@click.option("--until", metavar="TIME", help="Only records before this time: -1m, 2026-11-01.")
@click.option("--where", metavar="SQL", help="Only records that satisfy this condition.")
@spark_options
@brokers_option
@format_option
def audit(
    left: str,
    right: str,
    identity: str | None,
    until: str | None,
    where: str | None,
    brokers: str,
    format: OutputFormat,
    **spark_at: Any,
) -> int:
    """Check for lost, duplicated and reordered records between a source and a result.

    The exit code is 1 if there are any.

    \b
    penstock job audit orders archive:/data/archive:orders
    penstock job audit orders orders.valid --id "get_json_object(value, '$.id')" --until -1m
    """
    from penstock.jobs.audit import audit as compare
    from penstock.jobs.inputs import parse_input

    _, until_ms = parse_times("--until", None if until is None else f"@:{until}")
    sides = parse_input(left), parse_input(right)
    topics = [side.topic for side in sides if side.archive is None]
    run(brokers, lambda session: require_topics(session, topics))
    with job_session("audit", **spark_at) as spark:
        found = compare(
            spark,
            cluster=spark_cluster(brokers),
            left=sides[0],
            right=sides[1],
            identity=identity,
            until_ms=until_ms,
            where=where,
        )
    if format.is_data:
        print_data(found.document(), format)
        return 0 if found.is_clean else 1
    print(f"{found.left}: {show_count(found.left_records)} records, by {found.identity}")
    print(f"{found.right}: {show_count(found.right_records)} records")
    rows = [
        ("lost", found.lost),
        ("doubled", found.doubled),
        ("foreign", found.foreign),
        ("out of order", found.out_of_order),
        ("changed", found.changed),
        ("without id", found.without_id),
    ]
    print_table(
        ["finding", "records ", "example"],
        [
            (name, show_count(count), found.samples.get(name.replace(" ", "_"), [])[:3] or None)
            for name, count in rows
        ],
    )
    print("clean" if found.is_clean else "not clean")
    return 0 if found.is_clean else 1


# -- skew -------------------------------------------------------------------------------------


@click.command("skew")
@click.argument("topic", help="The topic to analyse.")
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Sample this fraction of the records.",
)
@report_option
@spark_options
@brokers_option
@format_option
def skew(
    topic: str,
    sample: float,
    report: str | None,
    brokers: str,
    format: OutputFormat,
    **spark_at: Any,
) -> None:
    """Find hot keys and overloaded partitions, and the salting that would balance them.

    \b
    penstock job skew clicks --report skew.html
    """

    async def look(session: CommandSession) -> int:
        await require_topics(session, [topic])
        return len((await session.cluster.topic(topic)).partitions)

    partitions = run(brokers, look)
    from penstock.jobs.skew import find_skew

    with job_session("skew", **spark_at) as spark:
        found = find_skew(
            spark, cluster=spark_cluster(brokers), topic=topic, partitions=partitions, sample=sample
        )
    if report is not None:
        from penstock.jobs.skew import report_of

        report_of(found).write(report)
    if format.is_data:
        print_data(found.document(), format)
    else:
        _print_skew(found)


def _print_skew(found: Skew) -> None:
    print(
        f"{show_count(found.records)} records, {show_count(found.keys)} keys; the largest of "
        f"{found.partitions} partitions has {found.imbalance:.2f} times its fair share"
    )
    print_table(
        ["key", "records ", "share ", "partition ", "hot"],
        [
            (
                one.key.decode("utf-8", "replace"),
                show_count(one.records),
                f"{one.share:.1%}",
                one.partition,
                one in found.hot,
            )
            for one in found.top[:10]
        ],
    )
    if found.buckets:
        print(f"\nwith salting, the largest would have {found.imbalance_salted:.2f} times:\n")
        print(found.code())


# -- dlq-triage -------------------------------------------------------------------------------


@click.command("dlq-triage")
@click.argument("topic", help="The dead-letter topic, or its source topic.")
@report_option
@click.option(
    "--redrive",
    "where",
    metavar="SQL",
    help="Redrive messages that satisfy this: \"error_class = 'Timeout' and attempts < 9\".",
)
@click.option("--to", metavar="TOPIC", help="Redrive them to this topic instead of their source.")
@yes_option
@spark_options
@brokers_option
@format_option
def triage(
    topic: str,
    report: str | None,
    where: str | None,
    to: str | None,
    yes: bool,
    brokers: str,
    format: OutputFormat,
    **spark_at: Any,
) -> None:
    """Group dead letters by error, write a report, and redrive those that a condition selects.

    Columns in the condition: error_class, error_message, kind, group, source_topic, attempts, key,
    value, failed_at, partition, offset.

    \b
    penstock job dlq-triage orders.dlq --report dead-letters.html
    penstock job dlq-triage orders.dlq --redrive "error_class = 'NotFound'" --yes
    """
    name, runs = run(brokers, lambda session: _open_runs(session, topic))
    from penstock.jobs.triage import read_dead_letters, report_of, select
    from penstock.jobs.triage import triage as group

    wanted: DeadLetterFilter | None = None
    with job_session("dlq-triage", **spark_at) as spark:
        rows = read_dead_letters(spark, spark_cluster(brokers), name, runs).cache()
        found = group(rows, name)
        if where is not None:
            wanted = select(rows, where)
    if report is not None:
        report_of(found).write(report)
    if not format.is_data:
        print(f"{show_count(found.dead_letters)} open messages in {name}")
        print_table(
            ["messages ", "error", "error message", "groups", "first", "last", "sample"],
            [
                (k.count, k.error_class, k.kind, k.groups, k.first, k.last, k.sample)
                for k in found.kinds
            ],
        )
    document = found.document()
    if wanted is not None:
        document["redriven"] = _redrive(brokers, name, wanted, to, yes)
        if not format.is_data:
            print(f"{show_count(document['redriven'])} messages redriven")
    if format.is_data:
        print_data(document, format)


async def _open_runs(session: CommandSession, given: str) -> tuple[str, Runs]:
    from penstock.client.dead_letters.open_messages import open_offsets

    name = await dead_letter_topic(session, given)
    places = open_offsets(session.cluster, name)
    return name, {where.partition: list(wanted) async for where, wanted in places}


def _redrive(brokers: str, topic: str, wanted: DeadLetterFilter, to: str | None, yes: bool) -> int:
    count = len(wanted.ids)
    if not count:
        return 0
    confirm(f"Redrive {show_count(count)} messages of {topic}?", yes)

    async def work(session: CommandSession) -> RedriveReport:
        from penstock.client.dead_letters.redrive import RedriveRequest

        if to is not None:
            await require_topics(session, [to])
        request = RedriveRequest(topic=topic, run=run_id(session), who=who(), chosen=wanted, to=to)
        return await carry_out(session, request, count)

    return run(brokers, work).settled
