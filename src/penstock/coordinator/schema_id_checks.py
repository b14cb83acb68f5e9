"""Whether the schemas that records are written with are known under their topics' subjects.

Answers of the registry are remembered for `REMEMBERED_SECONDS`: a schema that is deleted is taken
for that long after. What is not known is asked for each time, so that a schema may be used as soon
as it is registered. Bounds: `REMEMBERED_MAX` answers.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from penstock.base.errors import ErrorCode, Refused
from penstock.state.registry.requests import Vouch

REMEMBERED_SECONDS = 60.0
REMEMBERED_MAX = 20_000
ASKED_MAX = 1_000
"""Of ids that one batch may make us ask for."""
Mark = int | str
"""An id, or a guid: what a record says about its schema."""


class _Vouched(msgspec.Struct):
    ids: list[int]
    guids: list[str]


class KnownMarks:
    """What this node has heard of ids under subjects."""

    def __init__(self, ask: Callable[[Vouch], Awaitable[bytes]]) -> None:
        self._ask = ask
        self._until_s: dict[tuple[str, bool, str, Mark], float] = {}

    async def unknown(
        self, topic: str, marks: list[Mark], strategy: str, *, is_key: bool
    ) -> list[Mark]:
        """Those of `marks` that no record of the topic may have."""
        now_s = asyncio.get_running_loop().time()
        asked = [
            mark
            for mark in marks
            if self._until_s.get((topic, is_key, strategy, mark), 0.0) <= now_s
        ]
        if not asked:
            return []
        if len(asked) > ASKED_MAX:
            raise Refused(ErrorCode.INVALID_RECORD, "a batch has records of too many schemas")
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
        """Forgets what was heard first."""
        for key in list(self._until_s)[: max(0, len(self._until_s) + count - REMEMBERED_MAX)]:
            del self._until_s[key]
