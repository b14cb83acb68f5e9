"""What keeps this node from taking every write at the moment: its disk, and full backlogs.

Owns: whether a write is refused, and for how long its producer is put off. `is_on` is all that a
write costs while there is neither.

The disk (`upkeep` looks at it): from `disk.watermark.slow.percent` on producers are put off a
little after each request, more the fuller it is; from `disk.watermark.refuse.percent` on, and below
`disk.reserve.bytes`, they are refused with KAFKA_STORAGE_ERROR, which clients retry.

A partition's backlog (`coordinator.queues.backlog_limits` measures it): above `max.backlog.bytes`
its producers are refused, with POLICY_VIOLATION if `max.backlog.policy` is reject, so that they
hear of it at once; if it is block, with KAFKA_STORAGE_ERROR and a pause, so that clients try again
until their own time is up and go on when consumers have caught up.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from penstock.base.errors import ErrorCode, Refused

SLOW_SECONDS_MAX = 1.0
"""How long a producer is put off after each request when the disk is about to refuse it."""
BLOCKED_SECONDS = 1.0


class Policy(StrEnum):
    """What a producer of a topic with a full backlog is told."""

    BLOCK = "block"
    REJECT = "reject"


class Full(NamedTuple):
    """A backlog above its maximum."""

    policy: Policy
    reason: str


PartitionKey = tuple[str, int]


class WritePressure:
    """What weighs on the writes of one node."""

    __slots__ = ("_full", "delay_s", "is_on", "refusal")

    def __init__(self) -> None:
        self.refusal: str | None = None
        """Why no write is taken at all."""
        self.delay_s = 0.0
        """For how long a producer is put off after each write that is taken."""
        self._full: Mapping[PartitionKey, Full] = {}
        self.is_on = False

    def tell_disk(self, refusal: str | None, delay_s: float = 0.0) -> None:
        self.refusal, self.delay_s = refusal, delay_s
        self._look()

    def tell_backlogs(self, full: Mapping[PartitionKey, Full]) -> None:
        self._full = full
        self._look()

    def _look(self) -> None:
        self.is_on = self.refusal is not None or self.delay_s > 0 or bool(self._full)

    @property
    def full_count(self) -> int:
        return len(self._full)

    def full(self, topic: str, index: int) -> Full | None:
        return self._full.get((topic, index))

    def check(self, topic: str, index: int) -> None:
        """Raises Refused for a write that is not taken."""
        if self.refusal is not None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, self.refusal)
        found = self._full.get((topic, index))
        if found is not None:
            is_rejected = found.policy is Policy.REJECT
            code = ErrorCode.POLICY_VIOLATION if is_rejected else ErrorCode.KAFKA_STORAGE_ERROR
            raise Refused(code, found.reason)


def slowness(used_percent: float, slow_percent: float, refuse_percent: float) -> float:
    """Seconds that producers are put off, by how full the disk is; none below the watermark."""
    if used_percent < slow_percent:
        return 0.0
    span = refuse_percent - slow_percent
    share = (used_percent - slow_percent) / span if span > 0 else 1.0
    return SLOW_SECONDS_MAX * min(1.0, max(0.1, share))
