"""`penstock cheat`: the commands people need, by task, on one page; and Kafka's tools as ours.

The lines are data, so that a test can read every one with the commands' own parsers.
"""

from __future__ import annotations

from typing import NamedTuple

import click

from penstock.cli.terminal.output import console


class Line(NamedTuple):
    command: str
    meaning: str


TASKS: dict[str, tuple[Line, ...]] = {
    "Start": (
        Line("penstock up", "a broker here: Kafka on 9092, HTTP and console on 8080"),
        Line("penstock up --nodes 3", "a cluster here, with its own etcd"),
        Line("penstock node --config node.toml", "one node of a cluster"),
        Line("penstock doctor", "whether machine and cluster are fit, or what to do"),
        Line("penstock profile add prod -b node-1:9092", "a cluster by name; then `profile use`"),
    ),
    "Write and read": (
        Line("penstock topic create orders -p 6", "a topic with six partitions"),
        Line("penstock produce orders '{\"id\": 7}' -k 7", "one record with a key"),
        Line("penstock produce orders -K : < lines.txt", "each line KEY:VALUE"),
        Line("penstock consume orders", "from the start, and wait for more"),
        Line("penstock consume orders -o -10 -e", "the last ten of each partition"),
        Line("penstock consume orders -g billing", "as a member of a group"),
        Line("penstock consume orders -o @-1h -f '%p:%o %k %v\\n'", "the last hour, in your form"),
        Line("penstock topic describe orders", "partitions, offsets, sizes, configs"),
        Line("penstock topic alter orders -c retention.ms=86400000", "keep a day"),
    ),
    "Groups": (
        Line("penstock group list", "who reads"),
        Line("penstock group describe billing", "members, lag in records and in time"),
        Line("penstock group advise billing", "why it is behind, and what would help"),
        Line("penstock group seek billing --to @-1h", "move its offsets: shows, --yes does"),
        Line("penstock replay orders -g billing --from-time -1h", "have it read the hour again"),
    ),
    "Queues and dead letters": (
        Line("penstock queue list", "ready, in flight, delayed, oldest"),
        Line("penstock produce jobs '{\"id\": 7}' --delay 15m", "not before a quarter of an hour"),
        Line(
            "penstock group alter workers -c share.delivery.count.limit=3", "tries before it dies"
        ),
        Line("penstock queue peek jobs", "what waits, and for what; takes nothing"),
        Line("penstock worker shop.jobs:worker", "run a worker"),
        Line("penstock dlq list", "topics of dead letters, with depth and age"),
        Line("penstock dlq stats orders.dlq", "why they died"),
        Line("penstock dlq show orders.dlq 0:15", "one letter, whole"),
        Line("penstock dlq redrive orders.dlq --error 'Timeout*' --dry-run", "what would go back"),
        Line("penstock dlq redrive orders.dlq --rate 100", "send back, slowly"),
    ),
    "Pipelines on Spark": (
        Line("penstock pipeline run orders.py --once", "what is there, stage by stage"),
        Line("penstock pipeline status", "how far pipelines are, and what is wrong"),
        Line("penstock job archive orders --to /data/archive", "new records to Parquet, once"),
        Line("penstock job audit orders archive:/data/archive:orders", "lost, doubled, in order?"),
    ),
    "Cluster": (
        Line("penstock cluster describe", "nodes, leaders, copies that are missing"),
        Line("penstock cluster reassign --balance --dry-run", "spread replicas evenly"),
        Line("penstock cluster drain 4", "empty a node before it goes"),
        Line("penstock config list --changed", "what is not at its default"),
        Line("penstock config set log.retention.ms=86400000", "of all brokers, while they run"),
        Line("penstock plan --rate 100k --size 1Ki", "how large a cluster a load needs"),
    ),
    "Security": (
        Line("penstock user set alice", "a user, or a new password"),
        Line("penstock acl allow alice consumer --topic orders --group billing", "may read"),
        Line("penstock quota set --user alice producer_byte_rate=1048576", "1 MiB/s a node"),
    ),
    "Watch and mend": (
        Line("penstock generate grafana -o dashboards", "dashboards"),
        Line("penstock generate alerts -o penstock-alerts.yml", "alert rules"),
        Line("penstock txn list --hanging", "transactions that hold readers up"),
        Line("penstock debug bundle", "one file for a report, without secrets"),
    ),
}

KAFKA: dict[str, tuple[Line, ...]] = {
    "kafka-topics.sh": (
        Line("penstock topic list", "--list"),
        Line(
            "penstock topic create orders -p 6 -r 3", "--create --topic orders --partitions 6 ..."
        ),
        Line("penstock topic describe orders", "--describe --topic orders"),
        Line("penstock topic alter orders -p 12", "--alter --topic orders --partitions 12"),
        Line("penstock topic delete orders", "--delete --topic orders"),
    ),
    "kafka-console-producer.sh, kafka-console-consumer.sh": (
        Line("penstock produce orders", "--topic orders"),
        Line(
            "penstock produce orders -K :", "--property parse.key=true --property key.separator=:"
        ),
        Line("penstock consume orders", "--topic orders --from-beginning"),
        Line("penstock consume orders -o end", "--topic orders"),
        Line("penstock consume orders -g billing", "--topic orders --group billing"),
        Line("penstock consume orders --committed", "--isolation-level read_committed"),
    ),
    "kafka-consumer-groups.sh": (
        Line("penstock group list", "--list"),
        Line("penstock group describe billing", "--describe --group billing"),
        Line("penstock group seek billing --to start", "--reset-offsets --to-earliest --dry-run"),
        Line("penstock group seek billing --to @-1h --yes", "--reset-offsets --by-duration PT1H"),
        Line("penstock group describe billing --format csv", "--reset-offsets --export"),
        Line("penstock group seek billing --to file:offsets.csv --yes", "--from-file --execute"),
        Line("penstock group delete billing", "--delete --group billing"),
    ),
    "kafka-share-groups.sh": (
        Line("penstock queue list", "--list"),
        Line("penstock queue describe jobs -g workers", "--describe --group workers"),
    ),
    "kafka-configs.sh": (
        Line("penstock config list -t orders", "--describe --entity-type topics"),
        Line("penstock topic alter orders -c retention.ms=3600000", "--alter --add-config ..."),
        Line("penstock topic alter orders -d retention.ms", "--alter --delete-config ..."),
        Line("penstock config list -g workers", "--describe --entity-type groups"),
        Line("penstock config set log.cleaner.backoff.ms=1000", "--alter --entity-type brokers"),
        Line(
            "penstock group alter workers -c share.delivery.count.limit=3", "--entity-type groups"
        ),
        Line("penstock user set alice", "--alter --entity-type users --add-config SCRAM-..."),
        Line("penstock quota set --user alice producer_byte_rate=1048576", "--add-config ..."),
    ),
    "kafka-acls.sh": (
        Line("penstock acl list --topic orders", "--list --topic orders"),
        Line("penstock acl allow alice producer --topic orders", "--add --producer"),
        Line("penstock acl remove --principal alice --topic orders", "--remove"),
    ),
    "kafka-reassign-partitions.sh, kafka-leader-election.sh": (
        Line("penstock cluster reassign --plan plan.json", "--execute --reassignment-json-file"),
        Line("penstock cluster reassign --status", "--list, --verify"),
        Line("penstock cluster reassign --cancel", "--cancel"),
        Line("penstock cluster elect", "--election-type preferred"),
    ),
    "kafka-transactions.sh, kafka-delete-records.sh, kafka-metadata-quorum.sh": (
        Line("penstock txn list", "list"),
        Line("penstock txn list --hanging", "find-hanging"),
        Line("penstock txn abort copier-0", "abort, forceTerminateTransaction"),
        Line("penstock topic truncate orders --before 5", "--offset-json-file"),
        Line("penstock cluster describe", "describe --status"),
    ),
    "kafka-producer-perf-test.sh, kafka-broker-api-versions.sh": (
        Line("penstock bench -n 100000", "--num-records 100000"),
        Line("penstock wire list", "what is spoken, and in which versions"),
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
