"""What a call has come to so far: records and replies, gathered on the way."""

from collections.abc import Callable
from typing import Any

from penstock.base.machine import NOTHING, Decision, Record, Token


class Outcome:
    """Collects a Decision."""

    __slots__ = ("apply", "records", "replies")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[tuple[Token, Any]] = []
        self.apply: Callable[[], None] | None = None

    def keep(self, key: bytes, value: bytes | None) -> None:
        self.records.append((key, value))

    def reply(self, token: Token | None, response: Any) -> None:
        """No token: nobody waits any longer."""
        if token is not None:
            self.replies.append((token, response))

    def decision(self) -> Decision:
        if not self.records and not self.replies:
            return NOTHING
        return Decision(tuple(self.records), tuple(self.replies), self.apply)
