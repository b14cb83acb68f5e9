"""Checks that the schema ids of records are registered under their topics' subjects.

Answers of the registry are cached for `REMEMBERED_SECONDS`: a deleted schema is accepted for that
long. Negative answers are not cached, so that a schema may be used as soon as it is registered.
Bounds: `REMEMBERED_MAX` answers.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from penstock.base.errors import ErrorCode, Refused
from penstock.state.registry.requests import Vouch

REMEMBERED_SECONDS = 60.0
REMEMBERED_MAX = 20_000
ASKED_MAX = 1_000
"""Maximum ids looked up for one batch."""
Mark = int | str
"""Id, or guid: a record's reference to its schema."""


class _Vouched(msgspec.Struct):
    ids: list[int]
    guids: list[str]


class KnownMarks:
    """Cache of ids known under subjects."""

    def __init__(self, ask: Callable[[Vouch], Awaitable[bytes]]) -> None:
        self._ask = ask
        self._until_s: dict[tuple[str, bool, str, Mark], float] = {}

    async def unknown(
        self, topic: str, marks: list[Mark], strategy: str, *, is_key: bool
    ) -> list[Mark]:
        """Returns those of `marks` that are not registered for the topic."""
        now_s = asyncio.get_running_loop().time()
        asked = [
            mark
            for mark in marks
            if self._until_s.get((topic, is_key, strategy, mark), 0.0) <= now_s
        ]
        if not asked:
            return []
        if len(asked) > ASKED_MAX:
            raise Refused(
                ErrorCode.INVALID_RECORD,
                f"a batch refers to more than {ASKED_MAX} schemas: send smaller batches",
            )
        answer = await self._ask(
            Vouch(
                topic,
                is_key,
                strategy,
                tuple(mark for mark in asked if isinstance(mark, int)),
                tuple(mark for mark in asked if isinstance(mark, str)),
            )
        )
        vouched = msgspec.json.decode(answer, type=_Vouched)
        known: set[Mark] = {*vouched.ids, *vouched.guids}
        self._evict(len(known))
        for mark in asked:
            if mark in known:
                self._until_s[topic, is_key, strategy, mark] = now_s + REMEMBERED_SECONDS
        return [mark for mark in asked if mark not in known]

    def _evict(self, count: int) -> None:
        """Evicts the oldest answers."""
        for key in list(self._until_s)[: max(0, len(self._until_s) + count - REMEMBERED_MAX)]:
            del self._until_s[key]
