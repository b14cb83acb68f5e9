"""Metrics that are read at each scrape, instead of counted at each event.

One table: name, kind, meaning, labels, and how to read it from a running node. Metrics by topic,
group or queue are in `topic_metrics`.

Measurements taken only while the node is scraped: group lag, partition skew, loop delay. None of
them runs before the first scrape, nor once scrapes have stopped for some minutes
(`ScrapeActivity`). The first scrape starts them; values are available at the second.

Partition skew: spread of a topic's writes over its partitions here, in the last minute. A round
notes the end of each led partition; the difference to the previous round is its share. With the
number of partitions led here, the sum over all nodes tells the share of a topic's most written
partition, and the share that each would have if all were equal.

Bounds: `TOPICS_MAX` topics, those with the most records.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.cooperative_yield import CooperativeYield
from penstock.base.metrics import Histogram
from penstock.base.scrape_activity import ScrapeActivity
from penstock.cluster.metadata.image import INTERNAL_TOPICS, Image
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.replication.replica_follower import FollowerStatus
from penstock.coordinator import group_lag
from penstock.coordinator.group_lag import GroupWatch
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.node.metrics.gauges import GaugeReading, Sample
from penstock.node.metrics.topic_metrics import TOPIC_READINGS

if TYPE_CHECKING:
    from penstock.node.node import Node


ROUND_SECONDS = 60.0
TOPICS_MAX = 200
REST_SECONDS = 0.005


@dataclass(slots=True)
class TopicSkew:
    """Appends to one topic, in the partitions led here."""

    led: int = 0
    records: int = 0
    """Records appended between the last two rounds."""
    hottest: int = 0
    """Records appended to the partition with the most appends."""


class PartitionSkew:
    """Result of the last round."""

    def __init__(self, partitions: Partitions) -> None:
        self.topics: dict[str, TopicSkew] = {}
        self._partitions = partitions
        self._ends: dict[tuple[str, int], int] = {}

    async def run_round(self) -> None:
        """Runs one round."""
        ends: dict[tuple[str, int], int] = {}
        topics: dict[str, TopicSkew] = {}
        yielding = CooperativeYield(REST_SECONDS)
        for partition in list(self._partitions.led()):
            await yielding.draw()
            if partition.topic in INTERNAL_TOPICS:
                continue
            key = partition.topic, partition.index
            end = ends[key] = partition.log.end_offset
            skew = topics.setdefault(partition.topic, TopicSkew())
            # A partition that is new here has no earlier end: its records may all be old.
            appended = max(0, end - self._ends.get(key, end))
            skew.led += 1
            skew.records += appended
            skew.hottest = max(skew.hottest, appended)
        ranked = sorted(topics.items(), key=lambda item: (-item[1].records, item[0]))
        self.topics, self._ends = dict(ranked[:TOPICS_MAX]), ends


BEAT_SECONDS = 0.1


class Watching:
    def __init__(self, around: HostContext, groups: GroupCoordinator, loop_lag: Histogram) -> None:
        self.scrape_activity = ScrapeActivity()
        self.groups = GroupWatch(around, groups)
        self.skew = PartitionSkew(around.partitions)
        self._loop_lag = loop_lag

    async def run(self) -> None:
        """Measures until cancelled."""
        await asyncio.gather(self._look_at_groups(), self._look_at_topics(), self._time_loop())

    async def _look_at_groups(self) -> None:
        while True:
            await self.scrape_activity.wait()
            await self.groups.run_round()
            await asyncio.sleep(group_lag.ROUND_SECONDS)

    async def _look_at_topics(self) -> None:
        while True:
            await self.scrape_activity.wait()
            await self.skew.run_round()
            await asyncio.sleep(ROUND_SECONDS)

    async def _time_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.scrape_activity.wait()
            due_s = loop.time() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            self._loop_lag.observe(max(0.0, loop.time() - due_s))


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> float:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def calls_waiting(node: "Node") -> Iterable[Sample]:
    return [
        (("groups",), sum(runtime.waiting for runtime in node.groups.host.runtimes.values())),
        (("transactions",), sum(runtime.waiting for runtime in node.txns.host.runtimes.values())),
        (
            ("queues",),
            sum(runtime.waiting for runtime in node.queues.keeping.host.runtimes.values()),
        ),
        (("registry",), sum(runtime.waiting for runtime in node.registry.host.runtimes.values())),
    ]


def shards_loading(node: "Node") -> Iterable[Sample]:
    return [
        (("groups",), node.groups.host.loading_count),
        (("transactions",), node.txns.host.loading_count),
        (("queues",), node.queues.keeping.host.loading_count),
        (("registry",), node.registry.host.loading_count),
    ]


def leaderless(image: Image) -> int:
    return sum(
        record.leader not in image.brokers
        for topic in image.topics.values()
        for record in topic.partitions
    )


NODE_READINGS = (
    GaugeReading(
        "penstock_audit_entries_total",
        "counter",
        "Entries of the audit log that this node has written.",
        lambda node: node.audit.written,
    ),
    GaugeReading(
        "penstock_audit_waiting",
        "gauge",
        "Entries of the audit log that this node has not written yet.",
        lambda node: node.audit.waiting,
    ),
    GaugeReading(
        "penstock_connections",
        "gauge",
        "Kafka connections open now.",
        lambda node: node.kafka_listeners.connections,
    ),
    GaugeReading(
        "penstock_buffered_bytes",
        "gauge",
        "Memory in receive buffers beyond the small one that each connection has.",
        lambda node: node.kafka_listeners.budget.used,
    ),
    GaugeReading(
        "penstock_partitions",
        "gauge",
        "Partitions on this node.",
        lambda node: len(node.partitions),
    ),
    GaugeReading(
        "penstock_partitions_led",
        "gauge",
        "Partitions that this node leads.",
        lambda node: sum(1 for _ in node.partitions.led()),
    ),
    GaugeReading(
        "penstock_partitions_under_replicated",
        "gauge",
        "Partitions led by this node that lack an in-sync replica.",
        lambda node: sum(len(p.record.isr) < len(p.record.replicas) for p in node.partitions.led()),
    ),
    GaugeReading(
        "penstock_partitions_under_min_isr",
        "gauge",
        "Partitions led by this node with fewer in-sync replicas than min.insync.replicas.",
        lambda node: sum(
            p.leader_state is not None and p.leader_state.is_under_min
            for p in node.partitions.led()
        ),
    ),
    GaugeReading(
        "penstock_isr_shrinks_total",
        "counter",
        "Changes by leaders on this node that removed lagging replicas from the ISR.",
        lambda node: node.isr.shrinks,
    ),
    GaugeReading(
        "penstock_isr_expands_total",
        "counter",
        "Changes by leaders on this node that added replicas to the ISR after they caught up.",
        lambda node: node.isr.expands,
    ),
    GaugeReading(
        "penstock_replicas",
        "gauge",
        "Followers on this node by condition: ready, syncing, busy, paused or broken.",
        lambda node: [
            ((condition.value,), node.fetchers.count(condition)) for condition in FollowerStatus
        ],
        labels=("condition",),
    ),
    GaugeReading(
        "penstock_replica_bytes_total",
        "counter",
        "Bytes copied from leaders.",
        lambda node: node.fetchers.copied.bytes,
    ),
    GaugeReading(
        "penstock_replica_fetches_total",
        "counter",
        "Fetch requests sent to leaders.",
        lambda node: node.fetchers.copied.fetches,
    ),
    GaugeReading(
        "penstock_replica_batches_refused_total",
        "counter",
        "Batches from leaders that were damaged or out of order.",
        lambda node: node.fetchers.copied.batches_refused,
    ),
    GaugeReading(
        "penstock_replica_mends_total",
        "counter",
        "Repairs of follower logs: cut (truncated), start over (emptied), restore (replaced "
        "because of damage); refused: the leader lacked committed records that the follower holds.",
        lambda node: [
            (("cut",), node.fetchers.copied.truncations),
            (("start over",), node.fetchers.copied.resets),
            (("restore",), node.fetchers.copied.restored),
            (("refused",), node.fetchers.copied.truncations_refused),
        ],
        labels=("how",),
    ),
    GaugeReading(
        "penstock_controller",
        "gauge",
        "1 while this node is the controller.",
        lambda node: float(node.controller.is_active),
    ),
    GaugeReading(
        "penstock_fenced",
        "gauge",
        "1 while this node is fenced: it cannot confirm its registration and refuses writes.",
        lambda node: float(node.membership.is_fenced),
    ),
    GaugeReading(
        "penstock_partitions_leaderless",
        "gauge",
        "Partitions of the whole cluster without a leader, which cannot be written or read.",
        lambda node: leaderless(node.ctx.image),
    ),
    GaugeReading(
        "penstock_links",
        "gauge",
        "Other nodes that this node is connected to.",
        lambda node: len(node.links.connected),
    ),
    GaugeReading(
        "penstock_partitions_offline",
        "gauge",
        "Partitions taken out of service because of damage or a failed disk.",
        lambda node: sum(p.log.offline is not None for p in node.partitions.replicas()),
    ),
    GaugeReading(
        "penstock_log_bytes",
        "gauge",
        "Bytes in the logs of all partitions.",
        lambda node: sum(p.log.size_bytes for p in node.partitions.replicas()),
    ),
    GaugeReading(
        "penstock_disk_free_bytes",
        "gauge",
        "Free space on the disk that holds the logs.",
        lambda node: node.disk.free_bytes(node.config.data_dir),
    ),
    GaugeReading(
        "penstock_disk_used_percent",
        "gauge",
        "Used share of the disk that holds the logs, in percent.",
        lambda node: node.disk.used_percent(node.config.data_dir),
    ),
    GaugeReading(
        "penstock_backlogs_full",
        "gauge",
        "Partitions led here whose producers are blocked or rejected by max.backlog.bytes.",
        lambda node: node.partitions.pressure.full_count,
    ),
    GaugeReading(
        "penstock_writes_refused",
        "gauge",
        "1 while writes are refused because the disk is nearly full.",
        lambda node: float(node.partitions.pressure.refusal is not None),
    ),
    GaugeReading(
        "penstock_flushes_total",
        "counter",
        "Group commits; each makes everything appended before it durable.",
        lambda node: node.flusher.flushes,
    ),
    GaugeReading(
        "penstock_files_synced_total",
        "counter",
        "Files made durable by group commits.",
        lambda node: node.flusher.files_synced,
    ),
    GaugeReading(
        "penstock_segments_removed_total",
        "counter",
        "Segments removed by retention: by age, by size, or below the start of the log.",
        lambda node: node.housekeeping.segments_removed,
    ),
    GaugeReading(
        "penstock_retention_last_timestamp_seconds",
        "gauge",
        "End of the last round of retention over all partitions; 0 before the first.",
        lambda node: node.housekeeping.last_ms / 1000,
    ),
    GaugeReading(
        "penstock_compactions_running",
        "gauge",
        "Running compactions, at most log.cleaner.threads.",
        lambda node: node.compactor.running,
    ),
    GaugeReading(
        "penstock_compactions_waiting",
        "gauge",
        "Logs that are dirty enough for compaction and are queued for it.",
        lambda node: node.compactor.waiting,
    ),
    GaugeReading(
        "penstock_compaction_longest_seconds",
        "gauge",
        "Duration of the longest running compaction so far.",
        lambda node: node.compactor.longest_s,
    ),
    GaugeReading(
        "penstock_compactions_total",
        "counter",
        "Ended compactions by outcome: done, abandoned because they were no longer needed, or "
        "failed and to be retried.",
        lambda node: [
            (("done",), node.compactor.compactions),
            (("abandoned",), node.compactor.abandoned),
            (("failed",), node.compactor.failures),
        ],
        labels=("how",),
    ),
    GaugeReading(
        "penstock_compaction_last_timestamp_seconds",
        "gauge",
        "End of the last completed compaction; 0 before the first.",
        lambda node: node.compactor.last_ms / 1000,
    ),
    GaugeReading(
        "penstock_fetch_sessions",
        "gauge",
        "Fetch sessions kept (KIP-227).",
        lambda node: len(node.ctx.fetch.fetch_sessions),
    ),
    GaugeReading(
        "penstock_groups",
        "gauge",
        "Groups coordinated by this node that have or had members.",
        lambda node: node.groups.group_count,
    ),
    GaugeReading(
        "penstock_transactions_open",
        "gauge",
        "Transactions coordinated by this node that are open now.",
        lambda node: node.txns.open_count,
    ),
    GaugeReading(
        "penstock_coordinator_calls_waiting",
        "gauge",
        "Requests to coordinators not answered yet, including joins that wait for members.",
        calls_waiting,
        ("kind",),
    ),
    GaugeReading(
        "penstock_coordinator_shards_loading",
        "gauge",
        "Internal partitions whose state is being loaded; their groups and transactions wait.",
        shards_loading,
        ("kind",),
    ),
    GaugeReading(
        "penstock_process_resident_bytes",
        "gauge",
        "Memory of this process.",
        lambda node: resident_bytes(),
    ),
    GaugeReading(
        "penstock_process_cpu_seconds_total",
        "counter",
        "Processor time used by this process.",
        lambda node: cpu_seconds(),
    ),
)


READINGS = (*NODE_READINGS, *TOPIC_READINGS)


def observe(node: "Node") -> None:
    """Adds the readings of a running node to its catalogue."""
    for reading in READINGS:
        node.metrics.catalogue.add(
            reading.name,
            reading.kind,
            reading.help,
            reading.labels,
            read=_reader(reading, node),
        )


def _reader(reading: GaugeReading, node: "Node") -> Callable[[], Iterable[Sample]]:
    def read() -> Iterable[Sample]:
        value = reading.read(node)
        return [((), value)] if isinstance(value, int | float | Histogram) else value

    return read
