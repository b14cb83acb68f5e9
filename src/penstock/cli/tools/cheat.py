"""`penstock cheat`: common commands by task on one page, and equivalents of Kafka's tools.

The lines are data, so that a test can parse every one with the commands' own parsers.
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
        CheatLine("penstock up", "start a broker: Kafka on 9092, HTTP and console on 8080"),
        CheatLine("penstock up --nodes 3", "start a local cluster with its own etcd"),
        CheatLine("penstock node --config node.toml", "start one node of a cluster"),
        CheatLine("penstock doctor", "check machine and cluster"),
        CheatLine(
            "penstock profile add prod -b node-1:9092", "save a cluster by name; then `profile use`"
        ),
    ),
    "Write and read": (
        CheatLine("penstock topic create orders -p 6", "create a topic with six partitions"),
        CheatLine("penstock produce orders '{\"id\": 7}' -k 7", "write a record with a key"),
        CheatLine("penstock produce orders -K : < lines.txt", "write each line as KEY:VALUE"),
        CheatLine("penstock consume orders", "read from the start and follow"),
        CheatLine("penstock consume orders -o -10 -e", "read the last ten of each partition"),
        CheatLine("penstock consume orders -g billing", "read as a member of a group"),
        CheatLine(
            "penstock consume orders -o @-1h -f '%p:%o %k %v\\n'",
            "read the last hour, with a template",
        ),
        CheatLine("penstock topic describe orders", "partitions, offsets, sizes, configs"),
        CheatLine("penstock topic alter orders -c retention.ms=86400000", "retain one day"),
    ),
    "Groups": (
        CheatLine("penstock group list", "consumer groups"),
        CheatLine("penstock group describe billing", "members, lag in records and in time"),
        CheatLine("penstock group advise billing", "why it is behind, and what would help"),
        CheatLine("penstock group seek billing --to @-1h", "move its offsets; --yes applies"),
        CheatLine(
            "penstock replay orders -g billing --from-time -1h", "replay the last hour for it"
        ),
    ),
    "Queues and dead letters": (
        CheatLine("penstock queue list", "ready, in flight, delayed, oldest"),
        CheatLine("penstock produce jobs '{\"id\": 7}' --delay 15m", "deliver in 15 minutes"),
        CheatLine(
            "penstock group alter workers -c share.delivery.count.limit=3",
            "deliveries before dead-lettering",
        ),
        CheatLine("penstock queue peek jobs", "unfinished messages, without a lease"),
        CheatLine("penstock worker shop.jobs:worker", "run a worker"),
        CheatLine("penstock dlq list", "dead-letter topics with depth and age"),
        CheatLine("penstock dlq stats orders.dlq", "dead letters by error"),
        CheatLine("penstock dlq show orders.dlq 0:15", "one dead letter in full"),
        CheatLine(
            "penstock dlq redrive orders.dlq --error 'Timeout*' --dry-run", "preview a redrive"
        ),
        CheatLine("penstock dlq redrive orders.dlq --rate 100", "redrive, rate-limited"),
    ),
    "Pipelines on Spark": (
        CheatLine("penstock pipeline run orders.py --once", "process what is there"),
        CheatLine("penstock pipeline status", "progress and errors of pipelines"),
        CheatLine(
            "penstock job archive orders --to /data/archive", "archive new records to Parquet"
        ),
        CheatLine(
            "penstock job audit orders archive:/data/archive:orders", "lost, duplicated, reordered?"
        ),
    ),
    "Cluster": (
        CheatLine("penstock cluster describe", "nodes, leaders, missing replicas"),
        CheatLine(
            "penstock cluster reassign --balance --dry-run", "plan an even spread of replicas"
        ),
        CheatLine("penstock cluster drain 4", "empty a node before removing it"),
        CheatLine("penstock config list --changed", "configs that differ from defaults"),
        CheatLine("penstock config set log.retention.ms=86400000", "change all brokers at runtime"),
        CheatLine("penstock plan --rate 100k --size 1Ki", "size a cluster for a load"),
    ),
    "Security": (
        CheatLine("penstock user set alice", "add a user, or change a password"),
        CheatLine(
            "penstock acl allow alice consumer --topic orders --group billing", "allow reading"
        ),
        CheatLine(
            "penstock quota set --user alice producer_byte_rate=1048576",
            "limit to 1 MiB/s per node",
        ),
    ),
    "Monitor and repair": (
        CheatLine("penstock generate grafana -o dashboards", "Grafana dashboards"),
        CheatLine("penstock generate alerts -o penstock-alerts.yml", "Prometheus alert rules"),
        CheatLine("penstock txn list --hanging", "transactions that block readers"),
        CheatLine("penstock debug bundle", "collect diagnostics, without secrets"),
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
        CheatLine("penstock wire list", "APIs and their versions"),
    ),
}

PAGES = {"tasks": TASKS, "kafka": KAFKA}


@click.command("cheat")
@click.argument(
    "page",
    type=click.Choice(list(PAGES)),
    default="tasks",
    help="tasks (the default), or kafka: equivalents of Kafka's tools.",
)
def cheat(page: str) -> None:
    """Show common commands by task on one page.

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
        out.print("More in `penstock COMMAND --help`. Coming from Kafka? `penstock cheat kafka`.")
