"""Capacity model: the cluster size that a load needs, from measured coefficients.

Pure arithmetic. Bytes are carried in batches, so the cost of a load is bytes times the cost of a
byte in each role, plus requests times the cost of a request. The coefficients are the medians that
`make bench` measures on one two-core machine (docs/benchmarks.md, docs/internals/sizing.md). The
benchmark also compares the model's prediction of a replicated load with the load itself.

Every figure says whether it is measured or extrapolated. One machine can show the cost of a byte,
a request, a partition and a connection. That costs add up over machines with disks and networks of
their own is the model's assumption.
"""

import math
from dataclasses import dataclass, field

GB = 1e9
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs on one core, one process; see docs/internals/sizing.md."""

    produce_s_per_gb: float = 0.80
    """Leader: receive, check, write and sync a batch."""
    serve_s_per_gb: float = 0.56
    """Send stored batches to a consumer or a follower."""
    copy_s_per_gb: float = 1.45
    """Follower: receive, check, write and sync a batch."""
    request_us: float = 42.0
    """A produce or fetch request, of any size."""
    node_mib: float = 50.0
    partition_kib: float = 12.0
    connection_kib: float = 10.0
    partition_mb_per_s: float = 300.0
    """Write rate of one partition, with a sync for every acknowledgement."""
    connections_max: int = 5_000
    replicas_max: int = 1_000
    """Replicas per node: the largest number that was measured."""


@dataclass(frozen=True, slots=True)
class Load:
    messages_per_s: float
    message_bytes: float
    retention_days: float = 7.0
    replication: int = 3
    groups: int = 1
    """Consumer groups: the number of times that every message is read."""
    batch_bytes: float = 16_384.0
    """Bytes that producers put into one request and partition."""
    compression: float = 1.0
    """Original size over stored size."""
    producers: int = 50
    consume_ms: float = 0.0
    """Time that a consumer needs for one message; 0: unlimited consumers are assumed."""
    disk_gb: float = 2_000.0
    disk_mb_per_s: float = 250.0
    network_mb_per_s: float = 1_100.0
    cpu_fill: float = 0.6
    disk_fill: float = 0.75

    @property
    def stored_gb_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes / self.compression / GB


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    nodes: int
    why: str
    """Resource that decides the number of nodes."""
    wants: dict[str, int]
    """Nodes that each resource alone would need."""
    partitions: int
    consumers: int
    cpu_s_per_s: float
    disk_gb_per_node: float
    disk_mb_per_s_per_node: float
    network_mb_per_s_per_node: float
    memory_mib_per_node: float
    replicas_per_node: int
    notes: list[str] = field(default_factory=list)


def cpu_of(load: Load, costs: Costs) -> float:
    """CPU seconds per second, over the whole cluster."""
    gb = load.stored_gb_per_s
    copies = load.replication - 1
    requests = load.stored_gb_per_s * GB / max(load.batch_bytes, 1.0)
    per_gb = (
        costs.produce_s_per_gb
        + copies * (costs.serve_s_per_gb + costs.copy_s_per_gb)
        + load.groups * costs.serve_s_per_gb
    )
    return gb * per_gb + requests * costs.request_us / 1e6


def plan(load: Load, costs: Costs | None = None) -> CapacityPlan:
    """Returns the smallest cluster that carries the load, also with one node down."""
    costs = costs or Costs()
    gb = load.stored_gb_per_s
    cpu = cpu_of(load, costs)
    disk_gb = gb * DAY_SECONDS * load.retention_days * load.replication
    write_mb = gb * 1e3 * load.replication
    network_mb = gb * 1e3 * (1 + 2 * (load.replication - 1) + load.groups)
    wants = {
        "replication": load.replication,
        "cpu": _least(cpu / load.cpu_fill),
        "disk space": _least(disk_gb / (load.disk_gb * load.disk_fill)),
        "disk writes": _least(write_mb / (load.disk_mb_per_s * load.disk_fill)),
        "network": _least(network_mb / (load.network_mb_per_s * load.disk_fill)),
    }
    why = max(wants, key=lambda name: wants[name])
    # One more node, so that the others carry the load while it is down.
    nodes = wants[why] + (1 if load.replication > 1 and wants[why] > load.replication else 0)
    consumers = _consumers(load)
    partitions = _partitions(load, costs, nodes, consumers)
    replicas = math.ceil(partitions * load.replication / nodes)
    connections = load.producers + consumers * load.groups + 2 * nodes
    memory = (
        costs.node_mib
        + (replicas * costs.partition_kib + connections * costs.connection_kib) / 1024
    )
    made = CapacityPlan(
        nodes=nodes,
        why=why,
        wants=wants,
        partitions=partitions,
        consumers=consumers,
        cpu_s_per_s=cpu,
        disk_gb_per_node=disk_gb / nodes / load.disk_fill,
        disk_mb_per_s_per_node=write_mb / nodes,
        network_mb_per_s_per_node=network_mb / nodes,
        memory_mib_per_node=memory,
        replicas_per_node=replicas,
    )
    made.notes.extend(_notes(load, costs, made, connections))
    return made


def _least(nodes: float) -> int:
    return max(1, math.ceil(nodes - 1e-9))


def _consumers(load: Load) -> int:
    """Consumers of one group that keep up at 70 % of their time."""
    if not load.consume_ms:
        return 1
    return _least(load.messages_per_s * load.consume_ms / 1e3 / 0.7)


def _partitions(load: Load, costs: Costs, nodes: int, consumers: int) -> int:
    """Partitions: enough for the bytes, for the consumers, and to spread evenly over the nodes."""
    for_bytes = _least(load.stored_gb_per_s * 1e3 / (costs.partition_mb_per_s * 0.5))
    wanted = max(for_bytes, consumers, 2 * nodes)
    return math.ceil(wanted / nodes) * nodes


def _notes(load: Load, costs: Costs, made: CapacityPlan, connections: int) -> list[str]:
    notes = [
        "measured: what a byte, a request, a partition and a connection cost on one machine",
        "extrapolated: that these add up over machines with disks and networks of their own",
    ]
    if made.replicas_per_node > costs.replicas_max:
        notes.append(
            f"{made.replicas_per_node} replicas on a node exceed the measured "
            f"{costs.replicas_max}: use fewer partitions, or more nodes"
        )
    if connections > costs.connections_max:
        notes.append(
            f"{connections} connections on a node exceed the measured {costs.connections_max}"
        )
    if made.why == "disk space":
        others = max(count for name, count in made.wants.items() if name != "disk space")
        each = made.disk_gb_per_node * made.nodes / (others + 1)
        notes.append(
            f"only the disks need {made.nodes} nodes: with {each:,.0f} GB each, {others + 1} "
            "would carry the load; or keep less (retention, compression)"
        )
    if load.replication < 3:
        notes.append(
            f"with {load.replication} copies the loss of a node stops writes or loses data; "
            "min.insync.replicas=2 needs 3"
        )
    if load.batch_bytes < 4_096:
        notes.append("small batches: most of the CPU goes to requests; raise the producers' linger")
    if made.consumers > 1_000:
        notes.append("so many consumers need a queue (share group): its readers share partitions")
    return notes
