"""Sessions of the console: random tokens in memory.

A session ends after `SESSION_SECONDS`, after `IDLE_SECONDS` without use, at logout, and when its
user's credentials change or are deleted. Each node has its own sessions; a restart ends all.

Bounds: `SESSIONS_MAX`, of which a user has `EACH_MAX`. A user's session above that limit ends the
user's oldest; one above the total ends the oldest of the user with the most.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.ports import Random

SESSIONS_MAX, EACH_MAX = 1_000, 20
SESSION_SECONDS = 12 * 3_600.0
IDLE_SECONDS = 2 * 3_600.0
TOKEN_BYTES = 32


@dataclass(slots=True)
class ConsoleSession:
    name: str
    user: object
    """User record at login; any change of it ends the session."""
    token: str
    """Value of the session cookie."""
    write_token: str
    """Token that a page sends with changes, besides the cookie: other sites cannot read it."""
    ends_s: float
    idle_s: float

    @property
    def principal(self) -> str:
        return f"User:{self.name}"


class Sessions:
    def __init__(self, random: Random, user_of: Callable[[str], object]) -> None:
        """`user_of` returns a user's record; None if the user does not exist."""
        self._random = random
        self._user_of = user_of
        self._sessions: dict[str, ConsoleSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, name: str, now_s: float) -> ConsoleSession:
        self._evict(name)
        token, write_token = (self._random.random_bytes(TOKEN_BYTES).hex() for _ in range(2))
        session = ConsoleSession(
            name,
            self._user_of(name),
            token,
            write_token,
            now_s + SESSION_SECONDS,
            now_s + IDLE_SECONDS,
        )
        self._sessions[token] = session
        return session

    def _evict(self, name: str) -> None:
        held = Counter(session.name for session in self._sessions.values())
        if held[name] < EACH_MAX:
            if len(self._sessions) < SESSIONS_MAX:
                return
            name = max(held, key=held.__getitem__)
        oldest = next(token for token, one in self._sessions.items() if one.name == name)
        del self._sessions[oldest]

    def find(self, token: str, now_s: float) -> ConsoleSession | None:
        """Returns the session of a cookie unless it has ended; restarts its idle time."""
        session = self._sessions.get(token)
        if session is None:
            return None
        user = self._user_of(session.name)
        if now_s >= min(session.ends_s, session.idle_s) or user is None or user != session.user:
            del self._sessions[token]
            return None
        session.idle_s = now_s + IDLE_SECONDS
        return session

    def end(self, token: str) -> None:
        self._sessions.pop(token, None)
