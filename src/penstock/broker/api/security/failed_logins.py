"""Failed logins on every protocol: all are counted, some are logged.

Logging is rate-limited, so that unauthenticated peers cannot fill the log: `LINES_MAX` lines per
`WINDOW_SECONDS`, then the number of further failures. Text from peers is shortened and has no line
breaks.
"""

import asyncio
import logging

from penstock.base.metrics import Counter

log = logging.getLogger("penstock.security")

LINES_MAX = 10
WINDOW_SECONDS = 10.0
WORDS_MAX = 200


class FailedLogins:
    """Failed logins of one node."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._began_at = float("-inf")
        self._lines = 0
        self._untold = 0

    def note(self, peer: str, why: object) -> None:
        self._counter.value += 1
        now = asyncio.get_running_loop().time()
        if now >= self._began_at + WINDOW_SECONDS:
            if self._untold:
                log.warning("%d more logins failed meanwhile", self._untold)
            self._began_at, self._lines, self._untold = now, 0, 0
        if self._lines >= LINES_MAX:
            self._untold += 1
            return
        self._lines += 1
        words = str(why).encode("unicode_escape").decode()[:WORDS_MAX]
        log.warning("login from %s failed: %s", peer, words)
