"""The metrics that are read when somebody looks, instead of being counted when something happens.

Labels are bounded: nothing here is labelled by topic or partition beyond what the node has
limits for.
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.node.node import Node

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
Sample = tuple[tuple[str, ...], float]


def resident_bytes() -> float:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def observe(node: "Node") -> None:
    """Adds the gauges of a running node to its catalogue."""
    add = node.metrics.catalogue.add

    def one(value: float) -> Iterable[Sample]:
        return [((), value)]

    add(
        "penstock_connections",
        "gauge",
        "Kafka connections open now.",
        read=lambda: one(node.listener.connections),
    )
    add(
        "penstock_buffered_bytes",
        "gauge",
        "Memory in receive buffers beyond the small one that each connection has.",
        read=lambda: one(node.listener.budget.used),
    )
    add(
        "penstock_partitions",
        "gauge",
        "Partitions on this node.",
        read=lambda: one(len(node.partitions)),
    )
    add(
        "penstock_partitions_offline",
        "gauge",
        "Partitions taken out of service because of damage or a failed disk.",
        read=lambda: one(sum(p.log.offline is not None for p in node.partitions.led())),
    )
    add(
        "penstock_log_bytes",
        "gauge",
        "Bytes in the logs of all partitions.",
        read=lambda: one(sum(p.log.size_bytes for p in node.partitions.led())),
    )
    add(
        "penstock_disk_free_bytes",
        "gauge",
        "Free space on the disk that holds the logs.",
        read=lambda: one(node.disk.free_bytes(node.config.data_dir)),
    )
    add(
        "penstock_flushes_total",
        "counter",
        "Group commits: one makes everything appended before it durable.",
        read=lambda: one(node.flusher.flushes),
    )
    add(
        "penstock_files_synced_total",
        "counter",
        "Files made durable by group commits.",
        read=lambda: one(node.flusher.files_synced),
    )
    add(
        "penstock_fetch_sessions",
        "gauge",
        "Fetch sessions kept (KIP-227).",
        read=lambda: one(len(node.ctx.fetch_sessions)),
    )
    add(
        "penstock_groups",
        "gauge",
        "Groups coordinated by this node that have or had members.",
        read=lambda: one(node.groups.group_count),
    )
    add(
        "penstock_transactions_open",
        "gauge",
        "Transactions coordinated by this node that are open now.",
        read=lambda: one(node.txns.open_count),
    )
    add(
        "penstock_coordinator_calls_waiting",
        "gauge",
        "Requests to coordinators whose reply is still to come, joins that wait for others too.",
        ("kind",),
        read=lambda: [
            (("groups",), sum(seat.waiting for seat in node.groups.host.seats.values())),
            (("transactions",), sum(seat.waiting for seat in node.txns.host.seats.values())),
        ],
    )
    add(
        "penstock_coordinator_shards_loading",
        "gauge",
        "Internal partitions whose state is being read; their groups and transactions wait.",
        ("kind",),
        read=lambda: [
            (("groups",), node.groups.host.loading_count),
            (("transactions",), node.txns.host.loading_count),
        ],
    )
    add(
        "penstock_process_resident_bytes",
        "gauge",
        "Memory of this process.",
        read=lambda: one(resident_bytes()),
    )
    add(
        "penstock_process_cpu_seconds_total",
        "counter",
        "Processor time used by this process.",
        read=lambda: one(cpu_seconds()),
    )
