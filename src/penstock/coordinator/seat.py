"""One shard at work: a machine, the internal partition it writes to, and who waits for replies.

A call asks the machine for a decision, appends its records as one batch, applies them at once,
and hands out the replies when the batch is committed, in order. A decision without records is
answered when everything appended before it is committed, so nobody is told of what may yet be
lost. Effects (transaction markers) wait for the same moment.

If an append fails, or the machine breaks, what is in memory and what is in the log no longer
agree: the machine is thrown away, everybody who waits is told COORDINATOR_NOT_AVAILABLE, and the
host builds a new one by replay.

Bounds: `WAITING_MAX` calls wait at a time. Everything here runs on the loop, and nothing waits.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.base.machine import Decision, Machine, Record
from penstock.base.machine import Token as Token
from penstock.cluster.partition import Partition
from penstock.coordinator.time import SteadyTime
from penstock.wire import records as wire

log = logging.getLogger("penstock.coordinator")

WAITING_MAX = 50_000
TIMER_MS_MIN = 1

S = TypeVar("S", bound=Machine)
Answer: TypeAlias = Callable[[Any], None]
"""Takes a call's reply, or the Refused that it gets instead."""
Effect: TypeAlias = Callable[[], None]
"""To be run once the records that led to it are committed."""

_Row: TypeAlias = tuple[int, tuple[tuple[Token, Any], ...], Effect | None]


class Seat(Generic[S]):
    """The place of one partition's machine, whether there is one at the moment or not."""

    def __init__(
        self,
        partition: Partition,
        time: SteadyTime,
        codec: int,
        broken: Callable[["Seat[S]"], None],
        effects: Callable[["Seat[S]"], Effect | None],
    ) -> None:
        self.partition = partition
        self.shard: S | None = None
        self.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """What callers are told while there is no machine."""
        self.time = time
        self._codec = codec
        self._broken = broken
        self._effects = effects
        self._incarnation = 0
        self._token = 0
        self._waiting: dict[Token, Answer] = {}
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # -- calls ------------------------------------------------------------------------------

    def call(self, decide: Callable[[S, Token, int], Decision], answer: Answer) -> Token:
        """Asks the machine, and has `answer` called with the reply, perhaps before this returns.

        Raises Refused when the machine refuses, or when there is none.
        """
        shard = self.require()
        if len(self._waiting) >= WAITING_MAX:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many calls wait already")
        self._token += 1
        token = self._token
        self._waiting[token] = answer
        try:
            self._run(lambda now_ms: decide(shard, token, now_ms))
        except Refused:
            del self._waiting[token]
            raise
        return token

    def tell(self, decide: Callable[[S, int], Decision]) -> None:
        """As `call`, where nobody waits for a reply."""
        shard = self.require()
        self._run(lambda now_ms: decide(shard, now_ms))

    def dropped(self, token: Token) -> None:
        """The caller is gone."""
        if self._waiting.pop(token, None) is not None and self.shard is not None:
            self.shard.dropped(token)

    def require(self) -> S:
        if self.shard is None:
            raise Refused(self.refusal)
        return self.shard

    def _run(self, step: Callable[[int], Decision]) -> None:
        is_sound = False
        try:
            self._carry_out(step(self.time.now_ms()))
            is_sound = True
        except Refused:
            is_sound = True
            raise
        finally:
            if not is_sound:
                self.discard("the machine broke")
        self._arm()

    def _carry_out(self, decision: Decision) -> None:
        effect = None
        if decision.records:
            if not self._append(decision.records):
                return
            effect = self._effects(self)
        if decision.replies or effect is not None:
            self._when_committed((self._incarnation, decision.replies, effect))

    def _append(self, records: tuple[Record, ...]) -> bool:
        now_ms = self.time.now_ms()
        batch = wire.encode(
            [wire.Record(0, now_ms, key, value) for key, value in records], codec=self._codec
        )
        view = memoryview(batch)
        try:
            appended = self.partition.append(view, wire.read_header(view), now_ms)
        except (OSError, Refused) as error:
            self.discard(f"the append failed: {error}")
            return False
        self._written = appended.last_offset + 1
        shard = self.require()
        for key, value in records:
            shard.apply(key, value)
        return True

    # -- replies ----------------------------------------------------------------------------

    def _when_committed(self, row: _Row) -> None:
        if self.partition.when_committed(self._written, self, row):
            self._hand_out(row)

    def committed(self, row: object, code: ErrorCode) -> None:
        """The partition says that what `row` waits for is committed, or never will be."""
        assert isinstance(row, tuple)
        if row[0] != self._incarnation:
            return
        if code is not ErrorCode.NONE:
            self.discard(f"what was appended cannot be committed: {code.name}")
            return
        self._hand_out(row)

    def _hand_out(self, row: _Row) -> None:
        _, replies, effect = row
        for token, reply in replies:
            answer = self._waiting.pop(token, None)
            if answer is not None:
                answer(reply)
        if effect is not None:
            effect()

    # -- time -------------------------------------------------------------------------------

    def _arm(self) -> None:
        shard = self.shard
        due_ms = shard.deadline() if shard is not None else None
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(TIMER_MS_MIN, due_ms - self.time.now_ms())
        self._timer_ms = due_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        shard = self.shard
        if shard is None:
            return
        due_ms = shard.deadline()
        if due_ms is None or due_ms > self.time.now_ms():
            self._arm()
            return
        self._run(shard.tick)

    # -- coming and going -------------------------------------------------------------------

    def seated(self, shard: S) -> None:
        """A machine that has applied everything in the log takes its place."""
        shard.loaded(self.time.now_ms())
        self.shard = shard
        self._written = self.partition.log.end_offset
        effect = self._effects(self)
        if effect is not None:
            self._when_committed((self._incarnation, (), effect))
        self._arm()

    def discard(self, why: str) -> None:
        """Throws the machine away; the host is told, to build a new one."""
        if self.shard is None:
            return
        log.error("%s-%d is loaded again: %s", self.partition.topic, self.partition.index, why)
        self._vacate(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._broken(self)

    def offline(self) -> None:
        """The log cannot be read: there will be no machine until that is mended."""
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._vacate(code, code)

    def retire(self) -> None:
        """The partition is no longer led here."""
        self._vacate(ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)

    def _vacate(self, refusal: ErrorCode, code: ErrorCode) -> None:
        self.shard = None
        self.refusal = refusal
        self._incarnation += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer(Refused(code))
