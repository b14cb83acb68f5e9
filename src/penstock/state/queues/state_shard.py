"""Persisted state of queues: one shard for each partition of `__share_group_state`.

For each queue partition (a group, a topic, a partition) there is a snapshot and its deltas, both
opaque here: `delivery_state` defines their content. Deltas are numbered; a snapshot has the number
of the last delta it includes, and supersedes those before it. A delta's record key is its slot, of
which there are `SLOTS`, so compaction keeps one snapshot and at most `SLOTS` deltas.

Fencing: a read with a newer leader epoch fences all older leaders; the epoch itself is persisted.
A write must have the next number; any other means that two leaders have written.

Contract with the host as in `state.groups.shard`: the host appends and applies the records of a
Decision, and sends its replies once they are committed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import NOTHING, Decision, Record, Token

SLOTS = 4096
"""Maximum deltas after a snapshot; the next write must be a new snapshot."""
NO_EPOCH = -1
SNAPSHOT, DELTA = 0, 1


class QueueKey(NamedTuple):
    group: str
    topic_id: bytes
    partition: int


class StoredQueueState(NamedTuple):
    """Persisted state of one queue partition, as its reader gets it."""

    number: int
    snapshot: bytes | None
    deltas: tuple[bytes, ...]


class _Key(msgspec.Struct, array_like=True, frozen=True):
    kind: int
    group: str
    topic_id: bytes
    partition: int
    slot: int = 0


class _Value(msgspec.Struct, array_like=True, frozen=True):
    leader_epoch: int
    number: int
    payload: bytes


class _Held:
    __slots__ = ("deltas", "leader_epoch", "number", "snapshot")

    def __init__(self) -> None:
        self.leader_epoch = NO_EPOCH
        self.number = 0
        self.snapshot: bytes | None = None
        self.deltas: list[tuple[int, bytes]] = []


_encoder = msgspec.msgpack.Encoder()
_keys = msgspec.msgpack.Decoder(_Key)
_values = msgspec.msgpack.Decoder(_Value)


class StateShard:
    """State machine behind one partition of `__share_group_state`."""

    def __init__(self) -> None:
        self._held: dict[QueueKey, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def queues(self) -> Iterator[QueueKey]:
        yield from sorted(self._held)

    # Requests

    def read(self, key: QueueKey, leader_epoch: int, token: Token, now_ms: int) -> Decision:
        """Returns the persisted state to a new leader; fences older leaders from here on."""
        held = self._held.get(key)
        known = held.leader_epoch if held is not None else NO_EPOCH
        _require_epoch(leader_epoch, known)
        records: tuple[Record, ...] = ()
        reply = StoredQueueState(0, None, ())
        if held is not None:
            reply = StoredQueueState(
                held.number, held.snapshot, tuple(delta for _, delta in held.deltas)
            )
            if leader_epoch > known:
                # Keeps the number: only the leader changes, not the queue.
                payload = held.snapshot if held.snapshot is not None else b""
                if held.deltas or held.snapshot is None:
                    return self._fence(key, held, leader_epoch, reply, token)
                records = (self._record(key, SNAPSHOT, leader_epoch, held.number, payload),)
        return Decision(records, ((token, reply),))

    def _fence(
        self, key: QueueKey, held: _Held, leader_epoch: int, reply: StoredQueueState, token: Token
    ) -> Decision:
        """Writes the last delta again under the new epoch: the same state, another leader."""
        number, payload = held.deltas[-1] if held.deltas else (held.number, b"")
        record = self._record(key, DELTA, leader_epoch, number, payload)
        return Decision((record,), ((token, reply),))

    def write(
        self,
        key: QueueKey,
        leader_epoch: int,
        number: int,
        payload: bytes,
        is_snapshot: bool,
        token: Token,
        now_ms: int,
    ) -> Decision:
        """Persists the next delta, or a snapshot that includes everything up to `number`."""
        held = self._held.get(key)
        known = held.leader_epoch if held is not None else NO_EPOCH
        _require_epoch(leader_epoch, known)
        last = held.number if held is not None else 0
        if held is None and not is_snapshot:
            raise Refused(
                ErrorCode.FENCED_STATE_EPOCH,
                f"no state of group {key.group}: write a snapshot first",
            )
        if number != last + (not is_snapshot):
            raise Refused(
                ErrorCode.FENCED_STATE_EPOCH,
                f"delta {number} of {key.group} does not follow {last}: another leader has written",
            )
        if not is_snapshot and held is not None and len(held.deltas) >= SLOTS:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{SLOTS} deltas follow the snapshot: write a new snapshot",
            )
        kind = SNAPSHOT if is_snapshot else DELTA
        record = self._record(key, kind, leader_epoch, number, payload)
        return Decision((record,), ((token, number),))

    def forget(self, key: QueueKey, token: Token, now_ms: int) -> Decision:
        """Deletes the state of a queue whose group or topic is gone."""
        held = self._held.get(key)
        if held is None:
            return Decision(replies=((token, None),))
        slots = [_Key(SNAPSHOT, *key)]
        slots += [_Key(DELTA, *key, number % SLOTS) for number, _ in held.deltas]
        records = tuple((_encoder.encode(slot), None) for slot in slots)
        return Decision(records, ((token, None),))

    def _record(
        self, key: QueueKey, kind: int, leader_epoch: int, number: int, payload: bytes
    ) -> Record:
        slot = number % SLOTS if kind == DELTA else 0
        value = _Value(leader_epoch, number, payload)
        return _encoder.encode(_Key(kind, *key, slot)), _encoder.encode(value)

    # Interface of a hosted state machine

    def apply(self, key: bytes, value: bytes | None) -> None:
        where = _keys.decode(key)
        queue = QueueKey(where.group, where.topic_id, where.partition)
        if value is None:
            if where.kind == SNAPSHOT:
                self._held.pop(queue, None)
            return
        what = _values.decode(value)
        held = self._held.get(queue)
        if held is None:
            if where.kind == DELTA:
                return  # Left over: its snapshot was compacted away or deleted.
            held = self._held[queue] = _Held()
        held.leader_epoch = max(held.leader_epoch, what.leader_epoch)
        if where.kind == SNAPSHOT:
            held.snapshot = what.payload
            held.number = max(held.number, what.number)
            held.deltas = [delta for delta in held.deltas if delta[0] > what.number]
        elif what.number > held.number:
            held.number = what.number
            held.deltas.append((what.number, what.payload))

    def loaded(self, now_ms: int) -> None:
        pass

    def deadline(self) -> int | None:
        return None

    def tick(self, now_ms: int) -> Decision:
        return NOTHING

    def dropped(self, token: Token) -> None:
        pass


def _require_epoch(leader_epoch: int, known: int) -> None:
    if leader_epoch < known:
        raise Refused(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {leader_epoch} of the partition is fenced: the current one is {known}",
        )
