"""Placement of new partitions' replicas.

A pure function of the brokers and a starting point. Brokers form a ring in which racks alternate.
The replicas of partition n are consecutive from position n. So leaders are spread evenly, the
replicas of a partition are on different brokers, and on different racks if there are enough. After
each full round the followers are shifted by one, so that the load of a lost broker spreads.
"""

from collections.abc import Mapping, Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord

CORDONED = "cordoned.log.dirs"
"""Config name. A node has one log directory, so any value cordons the whole node."""


def place(
    brokers: Mapping[int, BrokerRecord],
    count: int,
    replication_factor: int,
    *,
    first: int = 0,
    start: int = 0,
) -> tuple[PartitionRecord, ...]:
    """Places partitions `first` to `first + count - 1` of a topic whose ring begins at `start`.

    Raises Refused(INVALID_REPLICATION_FACTOR) if there are too few brokers.
    """
    usable = {node: broker for node, broker in brokers.items() if not broker.is_draining}
    if replication_factor > len(usable):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered.",
        )
    ring = alternate_racks(usable)
    return tuple(
        initial_record(_replicas(ring, start + index, index, replication_factor))
        for index in range(first, first + count)
    )


def open_brokers(image: Image) -> dict[int, BrokerRecord]:
    """Brokers that may get new replicas: live, not draining, not cordoned (KIP-1066)."""
    for_all = image.cluster_configs.get(CORDONED, "")
    return {
        node: broker
        for node, broker in image.brokers.items()
        if not broker.is_draining
        and not image.broker_configs.get(node, {}).get(CORDONED, for_all).strip()
    }


def initial_record(replicas: Sequence[int], live: Sequence[int] | None = None) -> PartitionRecord:
    """Initial record of a partition: its first live replica leads, all live ones are in sync."""
    isr = tuple(node for node in replicas if live is None or node in live)
    assert isr, "a partition needs one live replica"
    return PartitionRecord(replicas=tuple(replicas), leader=isr[0], isr=isr)


def alternate_racks(brokers: Mapping[int, BrokerRecord]) -> list[int]:
    """Broker ids in an order in which neighbours are in different racks if possible."""
    racks: dict[str, list[int]] = {}
    for node in sorted(brokers):
        racks.setdefault(brokers[node].rack or "", []).append(node)
    columns = [racks[name] for name in sorted(racks)]
    depth = max((len(column) for column in columns), default=0)
    return [column[row] for row in range(depth) for column in columns if row < len(column)]


def _replicas(ring: list[int], place: int, index: int, count: int) -> list[int]:
    size = len(ring)
    leader = place % size
    shift = index // size
    followers = [ring[(leader + 1 + step) % size] for step in range(size - 1)]
    if followers and shift:
        turn = shift % len(followers)
        followers = followers[turn:] + followers[:turn]
    return [ring[leader], *followers[: count - 1]]
