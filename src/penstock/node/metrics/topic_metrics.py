"""Metrics by name of topic, group, queue or dead-letter topic.

Labels are bounded: each has at most 200 names, and one for the rest; partitions are those furthest
behind. Reading the lag of groups marks the node as being scraped.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.node.metrics.gauges import GaugeReading, Sample

if TYPE_CHECKING:
    from penstock.node.node import Node


def queued_records(node: "Node") -> Iterable[Sample]:
    machines = [queue.machine for queue in node.queues.queues()]
    return [
        (("ready",), sum(machine.ready_count for machine in machines)),
        (("delayed",), sum(machine.delayed_count for machine in machines)),
        (("leased",), sum(machine.kept.leased for machine in machines)),
        (("given up",), sum(len(machine.kept.archived) for machine in machines)),
    ]


def queue_events(node: "Node") -> Iterable[Sample]:
    counts = node.queues.counts
    return [
        (("delivered",), counts.delivered),
        (("finished",), counts.finished),
        (("released",), counts.released),
        (("given up",), counts.given_up),
    ]


def queue_depths(node: "Node") -> Iterable[Sample]:
    return [
        ((group, topic, state), count)
        for (group, topic), depth in node.queue_watch.queues.items()
        for state, count in (
            ("ready", depth.ready),
            ("in flight", depth.leased),
            ("delayed", depth.delayed),
            ("unfinished", depth.unfinished),
        )
    ]


def queue_ages(node: "Node") -> Iterable[Sample]:
    now_ms = node.clock.now_ms()
    return [(name, d.age_seconds(now_ms)) for name, d in node.queue_watch.queues.items()]


def dead_letter_ages(node: "Node") -> Iterable[Sample]:
    now_ms = node.clock.now_ms()
    return [((topic,), d.age_seconds(now_ms)) for topic, d in node.queue_watch.dead_letters.items()]


def traffic(what: str) -> Callable[["Node"], Iterable[Sample]]:
    def read(node: "Node") -> Iterable[Sample]:
        node.metrics.traffic.forget_all_but(node.ctx.image.topics)
        return [((topic,), getattr(t, what)) for topic, t in node.metrics.traffic.named()]

    return read


def group_lags(node: "Node") -> Iterable[Sample]:
    node.watching.scrape_activity.note_scrape()
    return [(name, lag.records) for name, lag in node.watching.groups.groups.items()]


def group_ages(node: "Node") -> Iterable[Sample]:
    now_ms = node.clock.now_ms()
    return [(n, lag.age_seconds(now_ms)) for n, lag in node.watching.groups.groups.items()]


def partition_lags(node: "Node") -> Iterable[Sample]:
    behind = node.watching.groups.partitions
    return [((one.group, one.topic, str(one.partition)), one.records) for one in behind]


def partition_ages(node: "Node") -> Iterable[Sample]:
    now_ms = node.clock.now_ms()
    behind = node.watching.groups.partitions
    return [((one.group, one.topic, str(one.partition)), one.age_seconds(now_ms)) for one in behind]


def group_trends(node: "Node") -> Iterable[Sample]:
    return [(name, lag.trend) for name, lag in node.watching.groups.groups.items()]


def recent_traffic(what: str) -> Callable[["Node"], Iterable[Sample]]:
    return lambda node: [((t,), getattr(w, what)) for t, w in node.watching.skew.topics.items()]


TOPIC_READINGS = (
    GaugeReading(
        "penstock_topic_records_in_total",
        "counter",
        "Records appended by producers, by topic.",
        traffic("records_in"),
        ("topic",),
    ),
    GaugeReading(
        "penstock_topic_records_out_total",
        "counter",
        "Records sent to consumers, by topic; see penstock_records_out_total.",
        traffic("records_out"),
        ("topic",),
    ),
    GaugeReading(
        "penstock_topic_bytes_in_total",
        "counter",
        "Bytes of record batches appended by producers, by topic.",
        traffic("bytes_in"),
        ("topic",),
    ),
    GaugeReading(
        "penstock_topic_bytes_out_total",
        "counter",
        "Bytes of record batches sent to consumers, by topic.",
        traffic("bytes_out"),
        ("topic",),
    ),
    GaugeReading(
        "penstock_topic_partitions_led",
        "gauge",
        "Partitions of a topic that this node leads.",
        recent_traffic("led"),
        ("topic",),
    ),
    GaugeReading(
        "penstock_topic_recent_records",
        "gauge",
        "Records appended to a topic's partitions led here, in about the last minute.",
        recent_traffic("records"),
        ("topic",),
    ),
    GaugeReading(
        "penstock_topic_hottest_partition_records",
        "gauge",
        "Part of penstock_topic_recent_records that went to the busiest partition.",
        recent_traffic("hottest"),
        ("topic",),
    ),
    GaugeReading(
        "penstock_group_lag",
        "gauge",
        "Records that a consumer group coordinated here has not read yet, by topic.",
        group_lags,
        ("group", "topic"),
    ),
    GaugeReading(
        "penstock_group_lag_seconds",
        "gauge",
        "Age of the oldest unread record of a group, where this node has a replica.",
        group_ages,
        ("group", "topic"),
    ),
    GaugeReading(
        "penstock_group_partition_lag",
        "gauge",
        "Records of a partition that a group has not read yet; only the 200 largest.",
        partition_lags,
        ("group", "topic", "partition"),
    ),
    GaugeReading(
        "penstock_group_partition_lag_seconds",
        "gauge",
        "Age of the first unread record of a partition, where this node has a replica.",
        partition_ages,
        ("group", "topic", "partition"),
    ),
    GaugeReading(
        "penstock_group_lag_trend",
        "gauge",
        "Growth of a group's lag in records per second; negative while it catches up.",
        group_trends,
        ("group", "topic"),
    ),
    GaugeReading(
        "penstock_share_sessions",
        "gauge",
        "Share sessions kept (KIP-932).",
        lambda node: len(node.ctx.share.share_sessions),
    ),
    GaugeReading(
        "penstock_queues",
        "gauge",
        "Queues open on this node: one for each share group and partition.",
        lambda node: sum(1 for _ in node.queues.queues()),
    ),
    GaugeReading(
        "penstock_queue_records",
        "gauge",
        "Records in the queues open on this node, by state.",
        queued_records,
        ("state",),
    ),
    GaugeReading(
        "penstock_queue_records_total",
        "counter",
        "Records of queues by outcome; given up: dead-lettered or dropped.",
        queue_events,
        ("what",),
    ),
    GaugeReading(
        "penstock_ack_seconds",
        "histogram",
        "Time from a queue's delivery of a record to its acknowledgement; of each delivery, the "
        "first record.",
        lambda node: node.queues.counts.ack_seconds,
    ),
    GaugeReading(
        "penstock_acknowledged_age_seconds",
        "histogram",
        "Age of records at their acknowledgement, from their timestamp, including waits and "
        "retries.",
        lambda node: node.queues.counts.acked_age,
    ),
    GaugeReading(
        "penstock_queue_depth",
        "gauge",
        "Unfinished records of a queue, in partitions led here, by state.",
        queue_depths,
        ("group", "topic", "state"),
    ),
    GaugeReading(
        "penstock_queue_oldest_seconds",
        "gauge",
        "Age of the oldest unfinished record of a queue, in partitions led here.",
        queue_ages,
        ("group", "topic"),
    ),
    GaugeReading(
        "penstock_dead_letters",
        "gauge",
        "Open dead letters (neither redriven nor purged), in partitions led here.",
        lambda node: [
            ((topic,), d.unfinished) for topic, d in node.queue_watch.dead_letters.items()
        ],
        ("topic",),
    ),
    GaugeReading(
        "penstock_dead_letters_oldest_seconds",
        "gauge",
        "Age of the oldest open dead letter, in partitions led here.",
        dead_letter_ages,
        ("topic",),
    ),
    GaugeReading(
        "penstock_acknowledged_records_deleted_total",
        "counter",
        "Records deleted because every group had finished with them (retention.mode=ack).",
        lambda node: node.ack_retention.records_deleted,
    ),
)
