"""Backpressure on writes from a nearly full disk and from full backlogs.

Owns: the decision to refuse a write, and the delay of its producer. Without either, a write costs
only the check of `is_on`.

The disk (`housekeeping` measures it): from `disk.watermark.slow.percent` on, producers are delayed
after each request, longer the fuller it is; from `disk.watermark.refuse.percent` on, and below
`disk.reserve.bytes`, they are refused with KAFKA_STORAGE_ERROR, which clients retry.

A partition's backlog (`coordinator.queues.backlog_limits` measures it): above `max.backlog.bytes`
its producers are refused. With `max.backlog.policy=reject` the error is POLICY_VIOLATION, which
fails at once. With `block` it is KAFKA_STORAGE_ERROR after a delay, so that clients retry until
their own timeout, and continue when consumers have caught up.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from penstock.base.errors import ErrorCode, Refused

SLOW_SECONDS_MAX = 1.0
"""Delay of a producer after each request when the disk is about to refuse writes."""
BLOCKED_SECONDS = 1.0


class Policy(StrEnum):
    """Response to producers of a topic with a full backlog."""

    BLOCK = "block"
    REJECT = "reject"


class Full(NamedTuple):
    """A backlog above its maximum."""

    policy: Policy
    reason: str


PartitionKey = tuple[str, int]


class WritePressure:
    """Present backpressure on the writes of one node."""

    __slots__ = ("_full", "delay_s", "is_on", "refusal")

    def __init__(self) -> None:
        self.refusal: str | None = None
        """Reason why all writes are refused."""
        self.delay_s = 0.0
        """Delay of a producer after each accepted write."""
        self._full: Mapping[PartitionKey, Full] = {}
        self.is_on = False

    def set_disk(self, refusal: str | None, delay_s: float = 0.0) -> None:
        self.refusal, self.delay_s = refusal, delay_s
        self._update()

    def set_full_backlogs(self, full: Mapping[PartitionKey, Full]) -> None:
        self._full = full
        self._update()

    def _update(self) -> None:
        self.is_on = self.refusal is not None or self.delay_s > 0 or bool(self._full)

    @property
    def full_count(self) -> int:
        return len(self._full)

    def full(self, topic: str, index: int) -> Full | None:
        return self._full.get((topic, index))

    def check(self, topic: str, index: int) -> None:
        """Raises Refused for a write that is not accepted."""
        if self.refusal is not None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, self.refusal)
        found = self._full.get((topic, index))
        if found is not None:
            is_rejected = found.policy is Policy.REJECT
            code = ErrorCode.POLICY_VIOLATION if is_rejected else ErrorCode.KAFKA_STORAGE_ERROR
            raise Refused(code, found.reason)


def slowness(used_percent: float, slow_percent: float, refuse_percent: float) -> float:
    """Delay of producers in seconds, by disk usage; none below the watermark."""
    if used_percent < slow_percent:
        return 0.0
    span = refuse_percent - slow_percent
    share = (used_percent - slow_percent) / span if span > 0 else 1.0
    return SLOW_SECONDS_MAX * min(1.0, max(0.1, share))
