"""Retention hold: the first offset that a log must keep for records that are or were delayed.

Retention counts from a record's timestamp, so a record with a longer delay would be deleted before
it is due. So the log keeps records while they are delayed, and for the retention time after they
came due. Coarse, and never too early: of the records that came due within one `STEP_MS` the lowest
offset is kept, and with more than `STEPS_MAX` steps two are merged.
"""

STEP_MS = 60_000
STEPS_MAX = 256


class Holding:
    __slots__ = ("_came",)

    def __init__(self) -> None:
        self._came: dict[int, int] = {}
        """Lowest offset that came due, by the end of its step; the earliest step first."""

    def came_due(self, offset: int, now_ms: int) -> None:
        came = self._came
        until_ms = (now_ms // STEP_MS + 1) * STEP_MS
        came[until_ms] = min(came.get(until_ms, offset), offset)
        if len(came) > STEPS_MAX:
            first, second = list(came)[:2]
            lowest = min(came.pop(first), came[second])
            came[second] = lowest

    def first(self, now_ms: int, retention_ms: int) -> int | None:
        """Lowest offset that came due within the last `retention_ms`; below 0: without limit."""
        if retention_ms >= 0:
            for until_ms in [one for one in self._came if now_ms - one > retention_ms]:
                del self._came[until_ms]
        return min(self._came.values(), default=None)
