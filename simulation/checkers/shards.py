"""Checker of coordinators: their state in memory must equal the state after a crash.

Inspects the nodes' internals after every callback that changed the disk. Violations:

- replay: a loaded shard differs from its earlier state at the same end offset;
- unreplicated: on a copy of the disk after a power cut, a shard differs from its earlier state, or
  its log lacks a committed record (tried after `cut_ratio` of all disk operations);
- owners: a partition of a KIP-848 group has two owners.

States are compared as `durable_state()` gives them.
"""

from typing import TYPE_CHECKING, Any

from penstock.cluster.replication.partition import Partition
from penstock.coordinator.runtime.shard_host import ShardHost
from penstock.coordinator.runtime.shard_runtime import ShardRuntime
from penstock.log.log import Log
from penstock.node.node import Node
from penstock.state.groups.consumer.group import ConsumerGroup
from penstock.state.groups.consumer.reconciliation import flat
from penstock.state.groups.shard import GroupShard
from penstock.state.transactions.records import TxnState
from penstock.state.transactions.shard import TxnShard
from penstock.wire.records import Column, batches, decode, is_control
from simulation.host import SimHost

if TYPE_CHECKING:
    import random

READ_BYTES = 1 << 20
STATES_MAX = 5_000


def canonical(state: Any) -> str:
    """Equal text for equal states, independent of the order in sets and dicts."""
    if isinstance(state, dict):
        rows = sorted((canonical(key), canonical(value)) for key, value in state.items())
        return "{" + ", ".join(f"{key}: {value}" for key, value in rows) + "}"
    if isinstance(state, set | frozenset):
        return "{" + ", ".join(sorted(canonical(item) for item in state)) + "}"
    if isinstance(state, list | tuple) and not hasattr(state, "_fields"):
        return "(" + ", ".join(canonical(item) for item in state) + ")"
    return repr(state)


class ShardChecker:
    """Inspects the coordinators of one machine's node."""

    def __init__(self, world: Any, host: SimHost, cut_ratio: float) -> None:
        self._world = world
        self._host = host
        self._cut_ratio = cut_ratio
        self._rng: random.Random = world.rng(f"cuts/{host.name}")
        self._operations = -1
        # State of the shard at each end offset, by internal partition.
        self._states: dict[tuple[str, int], dict[int, str]] = {}
        self._seen: dict[tuple[str, int], tuple[Any, int]] = {}
        self._types: dict[str, str] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._is_alone = len(world.cluster.hosts) == 1

    def step(self) -> None:
        """Inspects changed shards; called after each callback of the loop."""
        host = self._host
        node = host.node
        if node is None or not host.is_up:
            return
        for hosted in (node.groups.host, node.txns.host):
            for runtime in hosted.runtimes.values():
                if runtime.shard is not None and not runtime._records:
                    self._inspect(hosted.topic, runtime)
        if self._cut_ratio and host.disk.operations != self._operations:
            self._operations = host.disk.operations
            if self._rng.random() < self._cut_ratio:
                self._cut(node)

    def _inspect(self, topic: str, runtime: ShardRuntime[Any]) -> None:
        key, shard = (topic, runtime.partition.index), runtime.shard
        end = runtime.partition.log.end_offset
        last = self._seen.get(key)
        if last is not None and last[0] is shard and last[1] == end:
            return
        self._forget_other_leaders(key, runtime.partition.leader_epoch)
        assert shard is not None
        state = canonical(shard.durable_state())
        states = self._states.setdefault(key, {})
        if last is None or last[0] is not shard:
            self._world.reached("shard loaded")
            self._compare("replay", key, end, state)
            # Records after the end were never committed, and will be overwritten.
            for offset in [offset for offset in states if offset > end]:
                del states[offset]
        elif len(states) > STATES_MAX:
            del states[next(iter(states))]
        states[end] = state
        self._seen[key] = (shard, end)
        if isinstance(shard, GroupShard):
            self._check_owners(shard)
        else:
            self._note_timeouts(shard)

    def _forget_other_leaders(self, key: tuple[str, int], epoch: int) -> None:
        """Drops states after a leader change: another node may have overwritten their records."""
        if self._is_alone or self._epochs.get(key) == epoch:
            return
        self._epochs[key] = epoch
        self._states.pop(key, None)

    def _compare(self, name: str, key: tuple[str, int], end: int, state: str) -> None:
        known = self._states.get(key, {}).get(end)
        if known is None:
            self._world.reached("state unknown" if end else "state empty")
            return
        self._world.reached(f"{name} compared")
        if known != state:
            self._world.violate(
                name, f"{key[0]}-{key[1]} at {end}:\n  live     {known}\n  replayed {state}"
            )

    def _note_timeouts(self, shard: TxnShard) -> None:
        now_ms = self._host.clock.now_ms()
        for record in shard.durable_state().values():
            is_late = now_ms >= record.start_ms + record.timeout_ms
            if record.state is TxnState.PREPARE_ABORT and is_late:
                self._world.reached("transaction timed out")

    def _check_owners(self, shard: GroupShard) -> None:
        for group_id, group in sorted(shard.groups.items()):
            before = self._types.get(group_id, group.type_name)
            if before != group.type_name:
                word = "upgraded" if isinstance(group, ConsumerGroup) else "downgraded"
                self._world.reached(f"group {word}")
            self._types[group_id] = group.type_name
            if not isinstance(group, ConsumerGroup):
                continue
            owners: dict[tuple[bytes, int], str] = {}
            for member_id, current in sorted(group.currents.items()):
                for slot in sorted(flat(current.assigned) | flat(current.revoking)):
                    if slot in owners:
                        text = f"{slot[1]} has owners {owners[slot]} and {member_id}"
                        self._world.violate("owners", f"group {group_id}: partition {text}")
                    owners[slot] = member_id

    # -- power cuts on a copy ---------------------------------------------------------------

    def _cut(self, node: Node) -> None:
        self._world.fault("power cut on a copy")
        disk = self._host.disk.crashed(self._rng)
        makes = ((node.groups.host, node.groups._make), (node.txns.host, node.txns._make))
        for hosted, make in makes:
            for runtime, _ in hosted.active():
                self._check_copy(hosted, runtime.partition, disk, make())

    def _check_copy(
        self, hosted: ShardHost[Any], partition: Partition, disk: Any, shard: Any
    ) -> None:
        key = (hosted.topic, partition.index)
        now_ms = self._host.clock.now_ms()
        known = partition.log
        log = Log.open(disk, known.path, known.config, now_ms, None, known.cipher.keyring)
        if log.offline is not None or log.end_offset < partition.high_watermark:
            self._world.violate(
                "lost-write",
                f"{key[0]}-{key[1]} ends at {log.end_offset} after a cut, "
                f"{partition.high_watermark} was committed ({log.offline})",
            )
            return
        replay(log, shard)
        self._compare("unreplicated", key, log.end_offset, canonical(shard.durable_state()))


def replay(log: Log, shard: Any) -> None:
    """Applies all records of a log to an empty shard."""
    offset = log.start_offset
    while offset < log.end_offset:
        span = log.locate(offset, READ_BYTES, log.end_offset)
        assert span is not None
        view = memoryview(span.read())
        for position, header in batches(view):
            offset = header.next_offset
            if is_control(header.attributes):
                continue
            columns = decode(view[position:], columns=Column.KEYS | Column.VALUES)
            for key, value in zip(columns.keys(), columns.values(), strict=True):
                if key is not None:
                    shard.apply(key, value)
