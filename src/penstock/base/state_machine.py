"""The shape of every coordinator: decide, append, apply.

A machine is a plain object without I/O, clock or randomness. A call returns a `Decision`: records
to append to the machine's internal topic, and replies to hand out once those records are
committed. Only `apply` changes durable state, or a decision's own `apply` that does just the same;
recovery is replaying the log through it.
`penstock.coordinator.runtime.shard_host` is the one shell around them all.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol, TypeAlias

Token: TypeAlias = Hashable
"""Stands for a call that waits for its reply."""

Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value for a compacted topic; no value means that the key is gone."""


class Decision(NamedTuple):
    """What a call came to. A reply may answer an earlier call than the one that decided."""

    records: tuple[Record, ...] = ()
    replies: tuple[tuple[Token, Any], ...] = ()
    apply: Callable[[], None] | None = None
    """Does what applying these records one by one does, without reading them again."""


NOTHING = Decision()


class Machine(Protocol):
    """What the host needs to know of the machine (or shard of machines) it runs."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Makes one record part of the state; the only place that changes durable state."""
        ...

    def loaded(self, now_ms: int) -> None:
        """Everything was replayed: arm the timers."""
        ...

    def deadline(self) -> int | None:
        """When `tick` must be called next."""
        ...

    def tick(self, now_ms: int) -> Decision: ...

    def dropped(self, token: Token) -> None:
        """Nobody waits for this call's reply any longer."""
        ...
