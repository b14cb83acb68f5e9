"""Records and replies collected while one call is handled."""

from collections.abc import Callable
from typing import Any, Final

from penstock.base.state_machine import NOTHING, Decision, Record, Token

# A named tuple's own constructor is a Python function, and there is a decision for every request.
_new: Final = tuple.__new__


class CallResult:
    """Builder of a Decision."""

    __slots__ = ("apply", "records", "replies")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[tuple[Token, Any]] = []
        self.apply: Callable[[], None] | None = None

    def keep(self, key: bytes, value: bytes | None) -> None:
        self.records.append((key, value))

    def reply(self, token: Token | None, response: Any) -> None:
        """Adds a reply; without a token the client no longer waits and the reply is dropped."""
        if token is not None:
            self.replies.append((token, response))

    def decision(self) -> Decision:
        if not self.records and not self.replies:
            return NOTHING
        return _new(Decision, (tuple(self.records), tuple(self.replies), self.apply))
