"""Preferred read replica of a consumer (KIP-392): one in its own rack, if there is one.

`replica.selector.class` selects the policy: none, or Kafka's RackAwareReplicaSelector by its full
name. Among the live in-sync replicas in the consumer's rack that have the requested offset, the
leader is preferred, otherwise the one with the highest end offset. The leader replies with that
choice instead of records, and clients ask the leader again from time to time.
"""

from penstock.broker.api.context import FetchContext
from penstock.cluster.replication.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NO_REPLICA = -1


def selects(name: str | None) -> bool:
    """True if `replica.selector.class` selects replicas by rack."""
    return name == RACK_AWARE


def nearest(ctx: FetchContext, partition: Partition, offset: int, rack: str) -> int:
    """Returns the node to read from instead of this one, or -1."""
    leader_state = partition.leader_state
    if leader_state is None:
        return NO_REPLICA
    brokers = ctx.image.brokers
    own = brokers.get(ctx.node_id)
    if own is not None and own.rack == rack:
        return NO_REPLICA
    best, best_end = NO_REPLICA, -1
    for node in leader_state.record.isr:
        broker, copy = brokers.get(node), leader_state.copies.get(node)
        if broker is None or copy is None or broker.rack != rack or broker.is_draining:
            continue
        if copy.start_offset <= offset <= copy.end_offset and copy.end_offset > best_end:
            best, best_end = node, copy.end_offset
    return best
