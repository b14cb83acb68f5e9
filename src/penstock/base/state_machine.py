"""Replicated state machine, the pattern of every coordinator: decide, append, apply.

A machine is a plain object without I/O, clock or randomness. A call returns a `Decision`: records
to append to the machine's internal topic, and replies to send once those records are committed.
Only `apply` changes durable state, or a decision's own `apply` with the same effect; recovery
replays the log through `apply`. `penstock.coordinator.runtime.shard_host` runs all machines.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol, TypeAlias

Token: TypeAlias = Hashable
"""Identifies a call that waits for its reply."""

Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value for a compacted topic; None as value deletes the key."""


class Decision(NamedTuple):
    """Result of a call. Its replies may belong to earlier calls."""

    records: tuple[Record, ...] = ()
    replies: tuple[tuple[Token, Any], ...] = ()
    apply: Callable[[], None] | None = None
    """Has the effect of applying these records one by one, without decoding them again."""


NOTHING = Decision()


class Machine(Protocol):
    """Interface of a machine (or shard of machines) for its host."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Applies one record; the only method that changes durable state."""
        ...

    def loaded(self, now_ms: int) -> None:
        """Arms the timers after the replay."""
        ...

    def deadline(self) -> int | None:
        """Time of the next `tick`, or None."""
        ...

    def tick(self, now_ms: int) -> Decision: ...

    def dropped(self, token: Token) -> None:
        """Drops a call whose caller no longer waits for the reply."""
        ...
