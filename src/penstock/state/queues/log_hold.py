"""From which offset on a log must be kept for records that wait, or have waited, for their time.

Retention counts from a record's timestamp, and one that is delayed for longer would be gone before
it is due. So nothing goes while it waits, nor for as long as retention keeps anything after that:
it counts from when the record came due. Coarse, and never too early: what came due within one
`STEP_MS` is known by its first offset, and with more than `STEPS_MAX` steps two become one.
"""

STEP_MS = 60_000
STEPS_MAX = 256


class Holding:
    __slots__ = ("_came",)

    def __init__(self) -> None:
        self._came: dict[int, int] = {}
        """The lowest offset that came due, by the end of the step; the earliest step first."""

    def came_due(self, offset: int, now_ms: int) -> None:
        came = self._came
        until_ms = (now_ms // STEP_MS + 1) * STEP_MS
        came[until_ms] = min(came.get(until_ms, offset), offset)
        if len(came) > STEPS_MAX:
            first, second = list(came)[:2]
            lowest = min(came.pop(first), came[second])
            came[second] = lowest

    def first(self, now_ms: int, retention_ms: int) -> int | None:
        """The lowest offset that came due no longer than `retention_ms` ago, below 0: ever."""
        if retention_ms >= 0:
            for until_ms in [one for one in self._came if now_ms - one > retention_ms]:
                del self._came[until_ms]
        return min(self._came.values(), default=None)
