"""Deduplication window over the records of one partition, by their own timestamps.

A record is a duplicate if its id was seen at an earlier offset, less than `window_ms` before it by
both timestamps. Time is the records' own, so the same log gives the same result in every group and
after every restart: a reader that starts in the middle of a log first feeds it the records of one
window before. Bounded: beyond `ids_max` the oldest id is dropped early, and counted.

Clocks may be set, and those of publishers differ. A record up to `SKEW_MS` older than the first
one with its id counts as its duplicate, such as the same message from two relays. A record older
than that was sent after the clock went back, by an unknown time: it is delivered, and its id
counts from its own time on. When the clock goes forward, earlier records look older than they
are. In both cases a duplicate may be delivered; nothing is lost.
"""

from collections import OrderedDict

DEDUP_WINDOW_MS = 300_000
IDS_MAX = 1_000_000
ID_BYTES_MAX = 1024
"""Maximum length of an id: longer ones are distinguished by their first bytes only."""
SKEW_MS = 2_000
"""Tolerated difference between the clocks of publishers."""
_LAG_BITS = 48
_LAG_MAX = (1 << _LAG_BITS) - 1


class DedupWindow:
    __slots__ = ("_ids", "_ids_max", "_newest_ms", "forgotten_early", "window_ms")

    def __init__(self, window_ms: int = DEDUP_WINDOW_MS, ids_max: int = IDS_MAX) -> None:
        self.window_ms = window_ms
        self.forgotten_early = 0
        self._ids_max = ids_max
        self._newest_ms = 0
        # Id to the time it was first seen; in the low bits, the lag behind the newest time.
        self._ids: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ids)

    def is_repeated(self, dedup_id: bytes, sent_ms: int) -> bool:
        """Adds the id; True if it was seen within the window."""
        dedup_id = bytes(dedup_id[:ID_BYTES_MAX])
        self._newest_ms = max(self._newest_ms, sent_ms)
        self._expire()
        seen = self._ids.get(dedup_id)
        if seen is not None and self._is_near(sent_ms - (seen >> _LAG_BITS)):
            return True
        if seen is not None:
            del self._ids[dedup_id]
        elif len(self._ids) >= self._ids_max:
            self._ids.popitem(last=False)
            self.forgotten_early += 1
        self._ids[dedup_id] = sent_ms << _LAG_BITS | min(self._newest_ms - sent_ms, _LAG_MAX)
        return False

    def _is_near(self, age_ms: int) -> bool:
        return -min(SKEW_MS, self.window_ms) < age_ms < self.window_ms

    def _expire(self) -> None:
        """Drops ids that no later record can repeat, by the newest time when they were added and
        the newest time now, which never goes back."""
        limit_ms = self._newest_ms - 2 * self.window_ms
        while self._ids:
            oldest = next(iter(self._ids))
            noted = self._ids[oldest]
            if (noted >> _LAG_BITS) + (noted & _LAG_MAX) > limit_ms:
                return
            del self._ids[oldest]
