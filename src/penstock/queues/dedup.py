"""Which ids were seen lately: a window over the records of one partition, by their own timestamps.

A record repeats another if its id was seen at an earlier offset, and not longer than `window_ms`
before it. Time is the records' own, so the same log gives the same answer in every group, in every
life of the process: whoever starts in the middle of a log first shows it what lies one window
before. Bounded: beyond `ids_max` the oldest id is forgotten early, and counted.
"""

from collections import OrderedDict

DEDUP_WINDOW_MS = 300_000
IDS_MAX = 1_000_000
ID_BYTES_MAX = 1024
"""Longer ids are told apart by their first bytes only."""


class DedupWindow:
    __slots__ = ("_ids", "_ids_max", "_newest_ms", "forgotten_early", "window_ms")

    def __init__(self, window_ms: int = DEDUP_WINDOW_MS, ids_max: int = IDS_MAX) -> None:
        self.window_ms = window_ms
        self.forgotten_early = 0
        self._ids_max = ids_max
        self._newest_ms = 0
        self._ids: OrderedDict[bytes, int] = OrderedDict()  # Id to when it was first seen.

    def __len__(self) -> int:
        return len(self._ids)

    def is_repeated(self, dedup_id: bytes, sent_ms: int) -> bool:
        """Notes the id, and answers whether it was there within the window."""
        dedup_id = bytes(dedup_id[:ID_BYTES_MAX])
        self._newest_ms = max(self._newest_ms, sent_ms)
        self._expire()
        seen_ms = self._ids.get(dedup_id)
        if seen_ms is not None and sent_ms - seen_ms < self.window_ms:
            return True
        if seen_ms is not None:
            del self._ids[dedup_id]
        elif len(self._ids) >= self._ids_max:
            self._ids.popitem(last=False)
            self.forgotten_early += 1
        self._ids[dedup_id] = sent_ms
        return False

    def _expire(self) -> None:
        """Forgets what no record to come can repeat; clocks of producers may differ a little."""
        limit_ms = self._newest_ms - 2 * self.window_ms
        while self._ids:
            oldest = next(iter(self._ids))
            if self._ids[oldest] > limit_ms:
                return
            del self._ids[oldest]
