"""`penstock cheat`: the commands people need, by task, on one page; and Kafka's tools as ours.

The lines are data, so that a test can read every one with the commands' own parsers.
"""

from __future__ import annotations

from typing import NamedTuple

import click

from penstock.cli.terminal.output import console


class CheatLine(NamedTuple):
    command: str
    meaning: str


TASKS: dict[str, tuple[CheatLine, ...]] = {
    "Start": (
        CheatLine("penstock up", "a broker here: Kafka on 9092, HTTP and console on 8080"),
        CheatLine("penstock up --nodes 3", "a cluster here, with its own etcd"),
        CheatLine("penstock node --config node.toml", "one node of a cluster"),
        CheatLine("penstock doctor", "whether machine and cluster are fit, or what to do"),
        CheatLine(
            "penstock profile add prod -b node-1:9092", "a cluster by name; then `profile use`"
        ),
    ),
    "Write and read": (
        CheatLine("penstock topic create orders -p 6", "a topic with six partitions"),
        CheatLine("penstock produce orders '{\"id\": 7}' -k 7", "one record with a key"),
        CheatLine("penstock produce orders -K : < lines.txt", "each line KEY:VALUE"),
        CheatLine("penstock consume orders", "from the start, and wait for more"),
        CheatLine("penstock consume orders -o -10 -e", "the last ten of each partition"),
        CheatLine("penstock consume orders -g billing", "as a member of a group"),
        CheatLine(
            "penstock consume orders -o @-1h -f '%p:%o %k %v\\n'", "the last hour, in your form"
        ),
        CheatLine("penstock topic describe orders", "partitions, offsets, sizes, configs"),
        CheatLine("penstock topic alter orders -c retention.ms=86400000", "keep a day"),
    ),
    "Groups": (
        CheatLine("penstock group list", "who reads"),
        CheatLine("penstock group describe billing", "members, lag in records and in time"),
        CheatLine("penstock group advise billing", "why it is behind, and what would help"),
        CheatLine("penstock group seek billing --to @-1h", "move its offsets: shows, --yes does"),
        CheatLine(
            "penstock replay orders -g billing --from-time -1h", "have it read the hour again"
        ),
    ),
    "Queues and dead letters": (
        CheatLine("penstock queue list", "ready, in flight, delayed, oldest"),
        CheatLine(
            "penstock produce jobs '{\"id\": 7}' --delay 15m", "not before a quarter of an hour"
        ),
        CheatLine(
            "penstock group alter workers -c share.delivery.count.limit=3", "tries before it dies"
        ),
        CheatLine("penstock queue peek jobs", "what waits, and for what; takes nothing"),
        CheatLine("penstock worker shop.jobs:worker", "run a worker"),
        CheatLine("penstock dlq list", "topics of dead letters, with depth and age"),
        CheatLine("penstock dlq stats orders.dlq", "why they died"),
        CheatLine("penstock dlq show orders.dlq 0:15", "one letter, whole"),
        CheatLine(
            "penstock dlq redrive orders.dlq --error 'Timeout*' --dry-run", "what would go back"
        ),
        CheatLine("penstock dlq redrive orders.dlq --rate 100", "send back, slowly"),
    ),
    "Pipelines on Spark": (
        CheatLine("penstock pipeline run orders.py --once", "what is there, stage by stage"),
        CheatLine("penstock pipeline status", "how far pipelines are, and what is wrong"),
        CheatLine("penstock job archive orders --to /data/archive", "new records to Parquet, once"),
        CheatLine(
            "penstock job audit orders archive:/data/archive:orders", "lost, doubled, in order?"
        ),
    ),
    "Cluster": (
        CheatLine("penstock cluster describe", "nodes, leaders, copies that are missing"),
        CheatLine("penstock cluster reassign --balance --dry-run", "spread replicas evenly"),
        CheatLine("penstock cluster drain 4", "empty a node before it goes"),
        CheatLine("penstock config list --changed", "what is not at its default"),
        CheatLine(
            "penstock config set log.retention.ms=86400000", "of all brokers, while they run"
        ),
        CheatLine("penstock plan --rate 100k --size 1Ki", "how large a cluster a load needs"),
    ),
    "Security": (
        CheatLine("penstock user set alice", "a user, or a new password"),
        CheatLine("penstock acl allow alice consumer --topic orders --group billing", "may read"),
        CheatLine("penstock quota set --user alice producer_byte_rate=1048576", "1 MiB/s a node"),
    ),
    "Watch and mend": (
        CheatLine("penstock generate grafana -o dashboards", "dashboards"),
        CheatLine("penstock generate alerts -o penstock-alerts.yml", "alert rules"),
        CheatLine("penstock txn list --hanging", "transactions that hold readers up"),
        CheatLine("penstock debug bundle", "one file for a report, without secrets"),
    ),
}

KAFKA: dict[str, tuple[CheatLine, ...]] = {
    "kafka-topics.sh": (
        CheatLine("penstock topic list", "--list"),
        CheatLine(
            "penstock topic create orders -p 6 -r 3", "--create --topic orders --partitions 6 ..."
        ),
        CheatLine("penstock topic describe orders", "--describe --topic orders"),
        CheatLine("penstock topic alter orders -p 12", "--alter --topic orders --partitions 12"),
        CheatLine("penstock topic delete orders", "--delete --topic orders"),
    ),
    "kafka-console-producer.sh, kafka-console-consumer.sh": (
        CheatLine("penstock produce orders", "--topic orders"),
        CheatLine(
            "penstock produce orders -K :", "--property parse.key=true --property key.separator=:"
        ),
        CheatLine("penstock consume orders", "--topic orders --from-beginning"),
        CheatLine("penstock consume orders -o end", "--topic orders"),
        CheatLine("penstock consume orders -g billing", "--topic orders --group billing"),
        CheatLine("penstock consume orders --committed", "--isolation-level read_committed"),
    ),
    "kafka-consumer-groups.sh": (
        CheatLine("penstock group list", "--list"),
        CheatLine("penstock group describe billing", "--describe --group billing"),
        CheatLine(
            "penstock group seek billing --to start", "--reset-offsets --to-earliest --dry-run"
        ),
        CheatLine(
            "penstock group seek billing --to @-1h --yes", "--reset-offsets --by-duration PT1H"
        ),
        CheatLine("penstock group describe billing --format csv", "--reset-offsets --export"),
        CheatLine(
            "penstock group seek billing --to file:offsets.csv --yes", "--from-file --execute"
        ),
        CheatLine("penstock group delete billing", "--delete --group billing"),
    ),
    "kafka-share-groups.sh": (
        CheatLine("penstock queue list", "--list"),
        CheatLine("penstock queue describe jobs -g workers", "--describe --group workers"),
    ),
    "kafka-configs.sh": (
        CheatLine("penstock config list -t orders", "--describe --entity-type topics"),
        CheatLine(
            "penstock topic alter orders -c retention.ms=3600000", "--alter --add-config ..."
        ),
        CheatLine("penstock topic alter orders -d retention.ms", "--alter --delete-config ..."),
        CheatLine("penstock config list -g workers", "--describe --entity-type groups"),
        CheatLine(
            "penstock config set log.cleaner.backoff.ms=1000", "--alter --entity-type brokers"
        ),
        CheatLine(
            "penstock group alter workers -c share.delivery.count.limit=3", "--entity-type groups"
        ),
        CheatLine("penstock user set alice", "--alter --entity-type users --add-config SCRAM-..."),
        CheatLine("penstock quota set --user alice producer_byte_rate=1048576", "--add-config ..."),
    ),
    "kafka-acls.sh": (
        CheatLine("penstock acl list --topic orders", "--list --topic orders"),
        CheatLine("penstock acl allow alice producer --topic orders", "--add --producer"),
        CheatLine("penstock acl remove --principal alice --topic orders", "--remove"),
    ),
    "kafka-reassign-partitions.sh, kafka-leader-election.sh": (
        CheatLine(
            "penstock cluster reassign --plan plan.json", "--execute --reassignment-json-file"
        ),
        CheatLine("penstock cluster reassign --status", "--list, --verify"),
        CheatLine("penstock cluster reassign --cancel", "--cancel"),
        CheatLine("penstock cluster elect", "--election-type preferred"),
    ),
    "kafka-transactions.sh, kafka-delete-records.sh, kafka-metadata-quorum.sh": (
        CheatLine("penstock txn list", "list"),
        CheatLine("penstock txn list --hanging", "find-hanging"),
        CheatLine("penstock txn abort copier-0", "abort, forceTerminateTransaction"),
        CheatLine("penstock topic truncate orders --before 5", "--offset-json-file"),
        CheatLine("penstock cluster describe", "describe --status"),
    ),
    "kafka-producer-perf-test.sh, kafka-broker-api-versions.sh": (
        CheatLine("penstock bench -n 100000", "--num-records 100000"),
        CheatLine("penstock wire list", "what is spoken, and in which versions"),
    ),
}

PAGES = {"tasks": TASKS, "kafka": KAFKA}


@click.command("cheat")
@click.argument(
    "page",
    type=click.Choice(list(PAGES)),
    default="tasks",
    help="tasks (the default), or kafka: what Kafka's tools are called here.",
)
def cheat(page: str) -> None:
    """Show the commands people need, by task, on one page.

    \b
    penstock cheat
    penstock cheat kafka
    """
    out = console()
    lines = [line for rows in PAGES[page].values() for line in rows]
    width = max(len(line.command) for line in lines)
    for index, (title, rows) in enumerate(PAGES[page].items()):
        if index:
            out.print()
        out.print(title, style="bold", markup=False)
        for line in rows:
            out.print(f"  {line.command:<{width}}  ", end="", markup=False)
            out.print(line.meaning, style="dim", markup=False)
    if page == "tasks":
        out.print()
        out.print("`penstock COMMAND --help` has the rest. From Kafka? `penstock cheat kafka`.")
