"""Rebalance plans for evacuating, spreading and resizing replicas, as pure functions.

Owns: the choice of a broker for a replica that must move. It goes to a rack that the partition's
other replicas do not use, if there is one; there to the broker with the fewest replicas, of equals
to the lowest id. Nothing moves without need.

A plan names only partitions that change, each with its new replicas; the first one is the preferred
leader. `reassignment` carries a plan out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from penstock.base.errors import ErrorCode, Refused

PASSES_MAX = 10
"""Limit of passes: each brings the brokers closer together, and a few are enough."""

ReplicaKey = TypeVar("ReplicaKey", bound=tuple[str, int])
"""Topic and partition."""
Layout: TypeAlias = Mapping[ReplicaKey, tuple[int, ...]]
"""Replicas by topic and partition."""
Racks = Mapping[int, str | None]
"""Brokers that may take replicas, with their racks."""


@dataclass(slots=True)
class _Load:
    """Replicas and preferred leaders per broker, while a plan grows."""

    racks: Racks
    replicas: dict[int, int] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)

    def count(self, replicas: Sequence[int], step: int = 1) -> None:
        for node in replicas:
            self.replicas[node] = self.replicas.get(node, 0) + step
        if replicas:
            self.leaders[replicas[0]] = self.leaders.get(replicas[0], 0) + step

    def best(self, kept: Sequence[int], without: Collection[int] = ()) -> int | None:
        """Best broker to join these replicas."""
        used = [self.racks.get(node) for node in kept]
        candidates = [node for node in self.racks if node not in kept and node not in without]
        return min(
            candidates,
            key=lambda node: (used.count(self.racks[node]), self.replicas.get(node, 0), node),
            default=None,
        )


def _loaded(layout: Layout[ReplicaKey], racks: Racks) -> _Load:
    load = _Load(racks)
    for replicas in layout.values():
        load.count(replicas)
    return load


def evacuate(
    layout: Layout[ReplicaKey], racks: Racks, leaving: Collection[int]
) -> dict[ReplicaKey, tuple[int, ...]]:
    """Moves every replica off the leaving brokers; each successor takes its position.

    Raises Refused if a partition has more replicas than there are brokers to hold them.
    """
    staying = {node: rack for node, rack in racks.items() if node not in leaving}
    load = _loaded(layout, staying)
    plan = {}
    for place, replicas in sorted(layout.items()):
        if not any(node in leaving for node in replicas):
            continue
        load.count(replicas, -1)
        target = list(replicas)
        for position, node in enumerate(replicas):
            if node in leaving:
                kept = [other for other in target if other != node]
                successor = load.best(kept)
                if successor is None:
                    raise _too_few(place, len(replicas), len(staying))
                target[position] = successor
        load.count(target)
        plan[place] = tuple(target)
    return plan


def resize(
    layout: Layout[ReplicaKey], racks: Racks, factor: int
) -> dict[ReplicaKey, tuple[int, ...]]:
    """Gives every partition `factor` replicas: adds the best brokers, or drops the last replicas.

    Raises Refused if there are fewer brokers than that.
    """
    load = _loaded(layout, racks)
    plan = {}
    for place, replicas in sorted(layout.items()):
        target = list(replicas[:factor])
        load.count(replicas, -1)
        while len(target) < factor:
            more = load.best(target)
            if more is None:
                raise _too_few(place, factor, len(racks))
            target.append(more)
        load.count(target)
        if tuple(target) != replicas:
            plan[place] = tuple(target)
    return plan


def spread(layout: Layout[ReplicaKey], racks: Racks) -> dict[ReplicaKey, tuple[int, ...]]:
    """Spreads replicas, then preferred leaders, as evenly over the brokers as possible.

    Replicas move only from brokers with too many to brokers with too few, and never so that a
    partition's replicas share more racks than before.
    """
    load = _loaded(layout, racks)
    after: dict[ReplicaKey, tuple[int, ...]] = dict(sorted(layout.items()))
    for _ in range(PASSES_MAX):
        if not _even_out(after, load):
            break
    _spread_leaders(after, load)
    return {place: target for place, target in after.items() if target != layout[place]}


def _even_out(after: dict[ReplicaKey, tuple[int, ...]], load: _Load) -> bool:
    """Moves replicas from fuller brokers to the emptiest possible; True if any moved."""
    has_moved = False
    for place, replicas in after.items():
        for source in replicas:
            destination = _destination(after[place], source, load)
            if destination is not None:
                load.count(after[place], -1)
                after[place] = _swapped(after[place], source, destination)
                load.count(after[place])
                has_moved = True
    return has_moved


def _destination(replicas: tuple[int, ...], source: int, load: _Load) -> int | None:
    """Broker to take this replica: at least two replicas fewer, and not a worse rack."""
    if source not in load.racks:
        return None
    has = load.replicas
    able = [
        node
        for node in load.racks
        if node not in replicas
        and has.get(source, 0) - has.get(node, 0) >= 2
        and _shared_racks(_swapped(replicas, source, node), load.racks)
        <= _shared_racks(replicas, load.racks)
    ]
    return min(able, key=lambda node: (has.get(node, 0), node), default=None)


def _swapped(replicas: tuple[int, ...], source: int, destination: int) -> tuple[int, ...]:
    return tuple(destination if node == source else node for node in replicas)


def _spread_leaders(after: dict[ReplicaKey, tuple[int, ...]], load: _Load) -> None:
    """Puts another replica first where the first one's broker leads many more partitions."""
    for place, replicas in after.items():
        first = min(replicas, key=lambda node: (load.leaders.get(node, 0), replicas.index(node)))
        if load.leaders.get(replicas[0], 0) - load.leaders.get(first, 0) >= 2:
            load.count(replicas, -1)
            after[place] = (first, *(node for node in replicas if node != first))
            load.count(after[place])


def _shared_racks(replicas: Sequence[int], racks: Racks) -> int:
    """Number of replicas in a rack that another replica uses."""
    used = [racks.get(node) for node in replicas]
    return len(used) - len(dict.fromkeys(used))


def _too_few(place: tuple[str, int], factor: int, brokers: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"{place[0]}-{place[1]} needs {factor} replica(s), but only {brokers} broker(s) can take "
        "one.",
    )
