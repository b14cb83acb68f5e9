"""Alert rules for Prometheus: what wakes somebody, and what that person should do first.

Owns the rules and their thresholds, and writes them as the YAML that `rule_files` names. Lag is
watched by partition: a group that keeps up on all but one partition has a small total and a stuck
customer. Every rule says what it means and names the command to begin with.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on somebody should look."""

    lag_records: int = 10_000
    lag_seconds: int = 900
    disk_percent: int = 15
    """Less than this share of the disk is free."""
    skew: float = 4.0
    """The busiest partition of a topic gets as many times its share."""
    failed_logins_per_minute: int = 20
    loop_lag_ms: int = 250
    sync_ms: int = 500


class Alert(NamedTuple):
    name: str
    expression: str
    wait: str
    """For how long it must hold."""
    severity: str
    summary: str
    action: str


def alerts(limits: Thresholds) -> list[Alert]:
    return [*_availability(limits), *_consumers(limits), *_health(limits)]


def _availability(limits: Thresholds) -> Iterator[Alert]:
    yield Alert(
        "PenstockNodeDown",
        'up{job="penstock"} == 0',
        "1m",
        "critical",
        "{{ $labels.instance }} does not answer.",
        "Look at its log; `penstock cluster describe` says what the others lead meanwhile.",
    )
    yield Alert(
        "PenstockPartitionWithoutLeader",
        "max(penstock_partitions_leaderless) > 0",
        "1m",
        "critical",
        "{{ $value }} partitions can be neither written nor read.",
        "`penstock cluster describe`: start the nodes that hold their replicas.",
    )
    yield Alert(
        "PenstockUnderReplicated",
        "penstock_partitions_under_replicated > 0",
        "1m",
        "warning",
        "{{ $value }} partitions led by {{ $labels.instance }} lack an in-sync replica.",
        "`penstock cluster describe` names them; look for a node that is down or slow.",
    )
    yield Alert(
        "PenstockUnderMinIsr",
        "penstock_partitions_under_min_isr > 0",
        "1m",
        "critical",
        "{{ $value }} partitions led by {{ $labels.instance }} take no write with acks=all.",
        "`penstock cluster describe`: bring back the nodes that are missing.",
    )
    yield Alert(
        "PenstockFenced",
        "penstock_fenced == 1",
        "1m",
        "critical",
        "{{ $labels.instance }} cannot reach the cluster's metadata and takes no writes.",
        "Check etcd and the network between them; it comes back by itself.",
    )
    yield Alert(
        "PenstockControllers",
        "sum(penstock_controller) != 1",
        "2m",
        "critical",
        "{{ $value }} nodes say that they are the controller.",
        "Check etcd; `penstock cluster describe` names the controller.",
    )
    yield Alert(
        "PenstockReplicaOffline",
        "penstock_partitions_offline > 0",
        "0m",
        "critical",
        "{{ $value }} replicas on {{ $labels.instance }} are out of service.",
        "Its log says whether a disk failed or a file is damaged; `penstock doctor` checks both.",
    )
    yield Alert(
        "PenstockUncleanElection",
        'increase(penstock_elections_total{kind!="clean"}[15m]) > 0',
        "0m",
        "critical",
        "A replica was elected that may lack committed records ({{ $labels.kind }}).",
        "Compare what producers sent with what is there; see the log of the controller.",
    )


def _consumers(limits: Thresholds) -> Iterator[Alert]:
    yield Alert(
        "PenstockPartitionLag",
        f"max by (group, topic, partition) (penstock_group_partition_lag) > {limits.lag_records}",
        "5m",
        "warning",
        "Group {{ $labels.group }} is {{ $value }} records behind in "
        "{{ $labels.topic }}-{{ $labels.partition }}.",
        "`penstock group advise {{ $labels.group }}` says whether it is stuck, slow or hot.",
    )
    yield Alert(
        "PenstockLagInTime",
        f"max by (group, topic) (penstock_group_lag_seconds) > {limits.lag_seconds}",
        "5m",
        "warning",
        "Group {{ $labels.group }} has not read records of {{ $labels.topic }} that are "
        "{{ $value | humanizeDuration }} old.",
        "`penstock group describe {{ $labels.group }}`, then `penstock group advise`.",
    )
    yield Alert(
        "PenstockLagGrows",
        "max by (group, topic) (penstock_group_lag_trend) > 0 "
        f"and max by (group, topic) (penstock_group_lag) > {limits.lag_records}",
        "15m",
        "warning",
        "Group {{ $labels.group }} falls behind in {{ $labels.topic }} by "
        "{{ $value | humanize }} records a second, and has not caught up for 15 minutes.",
        "`penstock group advise {{ $labels.group }}` says how many members it needs.",
    )
    yield Alert(
        "PenstockQueueOld",
        f"max by (group, topic) (penstock_queue_oldest_seconds) > {limits.lag_seconds}",
        "5m",
        "warning",
        "The oldest record of queue {{ $labels.topic }} ({{ $labels.group }}) is "
        "{{ $value | humanizeDuration }} old.",
        "`penstock queue describe {{ $labels.topic }}`: add consumers, or see why they fail.",
    )
    yield Alert(
        "PenstockDeadLetters",
        "sum by (topic) (penstock_dead_letters) > 0",
        "0m",
        "warning",
        "{{ $value }} dead letters wait in {{ $labels.topic }}.",
        "`penstock dlq list`, then `penstock dlq stats {{ $labels.topic }}`; redrive or purge.",
    )
    yield Alert(
        "PenstockHotPartition",
        "max by (topic) (penstock_topic_hottest_partition_records) / "
        "(sum by (topic) (penstock_topic_recent_records) / "
        f"sum by (topic) (penstock_topic_partitions_led)) > {limits.skew:g} "
        "and sum by (topic) (rate(penstock_topic_records_in_total[5m])) > 10",
        "10m",
        "warning",
        "The busiest partition of {{ $labels.topic }} gets {{ $value | humanize }} times its "
        "share.",
        "`penstock group advise GROUP` names the hot keys and proposes what to do.",
    )


def _health(limits: Thresholds) -> Iterator[Alert]:
    yield Alert(
        "PenstockDiskFillsUp",
        f"penstock_disk_used_percent > {100 - limits.disk_percent} "
        "or predict_linear(penstock_disk_free_bytes[1h], 4 * 3600) < 0",
        "10m",
        "warning",
        "The disk of {{ $labels.instance }} is nearly full, or will be within 4 hours.",
        "Lower retention.ms or retention.bytes of the largest topics, or give it more disk.",
    )
    yield Alert(
        "PenstockWritesRefused",
        "penstock_writes_refused == 1",
        "0m",
        "critical",
        "{{ $labels.instance }} takes no writes because its disk is nearly full.",
        "Free some space: `penstock topic alter TOPIC -c retention.bytes=...`.",
    )
    yield Alert(
        "PenstockSlowDisk",
        "histogram_quantile(0.99, sum by (instance, le) "
        f"(rate(penstock_sync_seconds_bucket[5m]))) > {limits.sync_ms / 1000:g}",
        "5m",
        "warning",
        "One in a hundred syncs of {{ $labels.instance }} takes {{ $value | humanizeDuration }}.",
        "`penstock doctor` measures the disk; look for what else writes to it.",
    )
    yield Alert(
        "PenstockLoopLag",
        "histogram_quantile(0.99, sum by (instance, le) "
        f"(rate(penstock_loop_lag_seconds_bucket[5m]))) > {limits.loop_lag_ms / 1000:g}",
        "5m",
        "warning",
        "Everything {{ $labels.instance }} does is late by {{ $value | humanizeDuration }}.",
        "Its core is full: move leaders away (`penstock cluster reassign`) or add a node.",
    )
    yield Alert(
        "PenstockRequestsFail",
        "sum by (api, error) (rate(penstock_errors_total"
        '{error=~"KAFKA_STORAGE_ERROR|NOT_ENOUGH_REPLICAS|UNKNOWN_SERVER_ERROR"}[5m])) > 0',
        "5m",
        "warning",
        "{{ $labels.api }} requests are answered with {{ $labels.error }}.",
        "`penstock cluster describe`, then `penstock doctor` on the node whose log tells of it.",
    )
    yield Alert(
        "PenstockFailedLogins",
        "sum by (instance) (rate(penstock_failed_logins_total[5m])) * 60 "
        f"> {limits.failed_logins_per_minute}",
        "5m",
        "warning",
        "{{ $value | humanize }} logins a minute fail on {{ $labels.instance }}.",
        "Its log names the addresses: somebody guesses, or a client has an old password.",
    )
    yield Alert(
        "PenstockBug",
        "increase(penstock_internal_errors_total[15m]) > 0",
        "0m",
        "warning",
        "{{ $labels.instance }} closed connections because of errors of its own.",
        "Each is a bug: `penstock debug bundle` gathers what a report needs.",
    )


def rules(limits: Thresholds) -> str:
    """The file for `rule_files`."""
    lines = ["# Made by `penstock generate alerts`.", "groups:", "  - name: penstock", "    rules:"]
    for alert in alerts(limits):
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {quoted(alert.expression)}",
            f"        for: {alert.wait}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {quoted(alert.summary)}",
            f"          action: {quoted(alert.action)}",
        ]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """A YAML string in single quotes, which has one escape: the quote itself."""
    return "'" + text.replace("'", "''") + "'"
