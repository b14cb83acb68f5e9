"""Encrypted logs are opened ahead of those who read them from end to end.

To open a stretch takes about as long as to send it, and a consumer asks for the next one only when
it has the last: it would wait for both. So when it has been sent everything, and looks at it, the
next stretch is opened, and its next request finds it. What nobody asks for within `KEPT_SECONDS` is
forgotten, and of what there is at most `BYTES_MAX` are kept: then nothing more is opened ahead.

On the loop, one stretch at a time, as what is sent is opened there, too. Only from the page cache.
Why not by workers, and why not sooner: ADR 0025.

A stretch may hold what is not committed yet: it is handed out only to those who may read it, whose
span covers it. If it cannot be read or opened it is forgotten, too: whoever asks finds out why.
"""

import asyncio
from typing import Final

from penstock.base.errors import Corrupt
from penstock.log.encryption.decrypting_reader import Opened, open_stretch
from penstock.log.read_span import ReadSpan
from penstock.log.search import ending
from penstock.log.segment import Segment

BYTES_MAX: Final = 16 << 20
STRETCH_BYTES_MIN: Final = 256 * 1024
"""Below this a reader is near the end of the log, where there is nothing to be had ahead."""
STRETCH_BYTES_MAX: Final = 2 << 20
"""More would hold up the loop, and those who ask for more ask seldom."""
KEPT_SECONDS: Final = 1.0

ReadAheadKey = tuple[Segment, int]


class Stretch:
    """Batches of one segment from one position on: to be opened, or open."""

    __slots__ = ("opened", "since", "size")

    def __init__(self, size: int, since: float) -> None:
        self.size = size
        self.since = since
        self.opened: Opened | None = None


class ReadAhead:
    """Of one node."""

    def __init__(self) -> None:
        self._stretches: dict[ReadAheadKey, Stretch] = {}  # The oldest first.
        self._wanted: dict[ReadAheadKey, Stretch] = {}
        self._bytes = 0
        self._is_opening = False
        self._tidying: asyncio.TimerHandle | None = None

    @property
    def bytes_held(self) -> int:
        return self._bytes

    def take(self, span: ReadSpan) -> Opened | None:
        """What `span` begins with, if it is open. It is given once."""
        key = (span.segment, span.position)
        stretch = self._stretches.get(key)
        if stretch is None:
            return None
        self._forget(key, stretch)
        opened = stretch.opened
        if opened is None or opened.end > span.end:
            return None
        return opened if opened.generation == span.segment.generation else None

    def follow(self, span: ReadSpan, end: int) -> None:
        """`span` is being sent up to `end`: what comes next is opened, if somebody may want it."""
        if end - span.position < STRETCH_BYTES_MIN or span.bytes_max > STRETCH_BYTES_MAX:
            return
        segment = span.segment
        size = ending(segment, end, end + span.bytes_max, segment.size) - end
        key = (segment, end)
        if size < STRETCH_BYTES_MIN or key in self._stretches or self._bytes + size > BYTES_MAX:
            return
        loop = asyncio.get_running_loop()
        self._stretches[key] = self._wanted[key] = Stretch(size, loop.time())
        self._bytes += size
        if self._tidying is None:
            self._tidying = loop.call_later(KEPT_SECONDS, self._tidy)

    def sent(self) -> None:
        """Somebody has been sent everything, and has something to do for a while: now."""
        if self._wanted and not self._is_opening:
            self._is_opening = True
            asyncio.get_running_loop().call_soon(self._open)

    def _open(self) -> None:
        """Opens the stretch that waits longest, and comes back for the others."""
        for key, stretch in self._wanted.items():
            del self._wanted[key]
            try:
                stretch.opened = open_stretch(*key, stretch.size)
            except (Corrupt, OSError):
                stretch.opened = None
            if stretch.opened is None:
                self._forget(key, stretch)
            break
        self._is_opening = bool(self._wanted)
        if self._is_opening:
            # Whatever has become ready meanwhile comes first.
            asyncio.get_running_loop().call_soon(self._open)

    def _forget(self, key: ReadAheadKey, stretch: Stretch) -> None:
        if self._stretches.get(key) is stretch:
            del self._stretches[key]
            self._wanted.pop(key, None)
            self._bytes -= stretch.size

    def _tidy(self) -> None:
        self._tidying = None
        loop = asyncio.get_running_loop()
        late = loop.time() - KEPT_SECONDS
        for key, stretch in tuple(self._stretches.items()):
            if stretch.since <= late:
                self._forget(key, stretch)
        if self._stretches:
            self._tidying = loop.call_later(KEPT_SECONDS, self._tidy)
