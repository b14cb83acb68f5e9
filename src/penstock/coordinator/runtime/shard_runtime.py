"""One shard at work: a machine, the internal partition it writes to, and who waits for replies.

A call asks the machine for a decision and applies its records at once. What was decided in one
turn of the loop is appended together at its end, as one batch: a busy shard pays for one append
and not for one per call. Replies are handed out when that batch is committed, in order. A decision
without records is answered when everything decided before it is committed, so nobody is told of
what may yet be lost. Effects (transaction markers) wait for the same moment.

If an append fails, or the machine breaks, what is in memory and what is in the log no longer
agree: the machine is thrown away, everybody who waits is told COORDINATOR_NOT_AVAILABLE, and the
host builds a new one by replay.

Time alone decides nothing (an expired session, say) while this node may have been replaced without
knowing it: what it writes then may still come true if it leads again, and members that were silent
here have talked to another coordinator meanwhile. Timers wait until the partition is in touch.

Bounds: `WAITING_MAX` calls wait at a time; a batch has `BATCH_BYTES`, or what one decision needs.
Everything here runs on the loop, and nothing waits.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Decision, Machine, Record
from penstock.base.state_machine import Token as Token
from penstock.cluster.replication.partition import Partition
from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.wire import records as wire

log = logging.getLogger("penstock.coordinator")

WAITING_MAX = 50_000
BATCH_BYTES = 256 * 1024
"""With so much to append, the end of the turn is not waited for."""
TIMER_MS_MIN = 1
OUT_OF_TOUCH_SECONDS = 0.5
"""Until a timer that could not be acted on is looked at again."""

S = TypeVar("S", bound=Machine)
Answer: TypeAlias = Callable[[Any], None]
"""Takes a call's reply, or the Refused that it gets instead."""
Effect: TypeAlias = Callable[[], None]
"""To be run once the records that led to it are committed."""

_Row: TypeAlias = tuple[tuple[tuple[Token, Any], ...], Effect | None]
"""What one decision leads to, once it is committed."""


class ShardRuntime(Generic[S]):
    """The place of one partition's machine, whether there is one at the moment or not."""

    def __init__(
        self,
        partition: Partition,
        time: SteadyTime,
        codec: int,
        broken: Callable[["ShardRuntime[S]"], None],
        effects: Callable[["ShardRuntime[S]"], Effect | None],
    ) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.shard: S | None = None
        self.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """What callers are told while there is no machine."""
        self.refusal_text: str | None = None
        """Why, where it is not only for a moment."""
        self.time = time
        self._codec = codec
        self._broken = broken
        self._effects = effects
        self._incarnation = 0
        self._token = 0
        self._waiting: dict[Token, Answer] = {}
        # What was decided and applied in this turn, but is not appended yet.
        self._records: list[Record] = []
        self._bytes = 0
        self._rows: list[_Row] = []
        self._is_due = False
        # The end of what was appended.
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # -- calls ------------------------------------------------------------------------------

    def call(self, decide: Callable[[S, Token, int], Decision], answer: Answer) -> Token:
        """Asks the machine, and has `answer` called with the reply, perhaps before this returns.

        Raises Refused when the machine refuses, or when there is none, or when this node cannot be
        sure any longer that it is the one to ask.
        """
        shard = self.require()
        if not self.partition.is_valid():
            raise Refused(ErrorCode.NOT_COORDINATOR)
        if len(self._waiting) >= WAITING_MAX:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many calls wait already")
        token = self._token = self._token + 1
        self._waiting[token] = answer
        try:
            self._run(shard, decide, token)
        except Refused:
            del self._waiting[token]
            raise
        return token

    def tell(self, decide: Callable[[S, int], Decision]) -> None:
        """As `call`, where nobody waits for a reply."""
        self._run(self.require(), decide)

    def dropped(self, token: Token) -> None:
        """The caller is gone."""
        if self._waiting.pop(token, None) is not None and self.shard is not None:
            self.shard.dropped(token)

    def require(self) -> S:
        if self.shard is None:
            raise Refused(self.refusal, self.refusal_text)
        return self.shard

    def _run(self, shard: S, decide: Callable[..., Decision], *token: Token) -> None:
        is_sound = False
        try:
            decision = decide(shard, *token, self.time.now_ms())
            if decision.records:
                self._keep(shard, decision)
            elif decision.replies:
                self._promise(decision.replies, None)
            is_sound = True
        except Refused:
            is_sound = True
            raise
        finally:
            if not is_sound:
                self.discard("the machine broke")
        self._arm()

    # -- records ----------------------------------------------------------------------------

    def _keep(self, shard: S, decision: Decision) -> None:
        """Applies what was decided, and has it appended with the rest of this turn."""
        records, replies, apply = decision
        if apply is not None:
            apply()
        else:
            for key, value in records:
                shard.apply(key, value)
        self._records += records
        self._bytes += sum([len(key) + (len(value) if value else 0) for key, value in records])
        effect = self._effects(self)
        if replies or effect is not None:
            self._promise(replies, effect)
        if self._bytes >= BATCH_BYTES:
            self._append()
        elif not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_due = False
        self._append()

    def _append(self) -> None:
        records = self._records
        if not records:
            return  # There was too much to wait for the end of the turn, or the machine is gone.
        rows, self._rows = self._rows, []
        self._records, self._bytes = [], 0
        if self.partition.leader_epoch != self.leader_epoch:
            # What was decided for one epoch is not written in the next.
            self.discard("another leader epoch has begun", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        now_ms = self.time.now_ms()
        batch = wire.encode(
            [(0, now_ms, key, value, ()) for key, value in records],
            codec=self._codec,
            base_timestamp=now_ms,
            max_timestamp=now_ms,
        )
        view = memoryview(batch)
        try:
            appended = self.partition.append(view, wire.read_header(view), now_ms)
        except (OSError, Refused) as error:
            code = error.code if isinstance(error, Refused) else ErrorCode.KAFKA_STORAGE_ERROR
            self.discard(f"the append failed: {error}", code)
            return
        self._written = appended.last_offset + 1
        if rows:
            self._when_committed(rows)

    # -- replies ----------------------------------------------------------------------------

    def _promise(self, replies: tuple[tuple[Token, Any], ...], effect: Effect | None) -> None:
        """To be kept once everything decided so far is committed."""
        if self._records:
            self._rows.append((replies, effect))
        else:
            self._when_committed([(replies, effect)])

    def _when_committed(self, rows: list[_Row]) -> None:
        if self.partition.when_committed(self._written, self, (self._incarnation, rows)):
            self._hand_out(rows)

    def committed(self, row: object, code: ErrorCode) -> None:
        """The partition says that what `row` waits for is committed, or never will be."""
        assert isinstance(row, tuple)
        incarnation, rows = row
        if incarnation != self._incarnation:
            return
        if code is not ErrorCode.NONE:
            self.discard(f"what was appended cannot be committed: {code.name}", code)
            return
        self._hand_out(rows)

    def _hand_out(self, rows: list[_Row]) -> None:
        incarnation = self._incarnation
        for replies, effect in rows:
            for token, reply in replies:
                answer = self._waiting.pop(token, None)
                if answer is not None:
                    answer(reply)
            if effect is not None:
                effect()
            if incarnation != self._incarnation:
                return  # The machine broke meanwhile, and everybody was told.

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
        if not self.partition.is_in_touch():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(OUT_OF_TOUCH_SECONDS, self._tick)
            return
        self._run(shard, _tick)

    # -- coming and going -------------------------------------------------------------------

    def activated(self, shard: S) -> None:
        """A machine that has applied everything in the log takes its place."""
        shard.loaded(self.time.now_ms())
        self.shard = shard
        self._written = self.partition.log.end_offset
        effect = self._effects(self)
        if effect is not None:
            self._promise((), effect)
        self._arm()

    def discard(self, why: str, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        """Throws the machine away; the host is told, to build a new one."""
        if self.shard is None:
            return
        level, told = logging.ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            level, told = logging.INFO, ErrorCode.NOT_COORDINATOR  # Callers look elsewhere.
        log.log(level, "%s-%d is given up: %s", self.partition.topic, self.partition.index, why)
        self._vacate(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, told)
        self._broken(self)

    def offline(self, refused: Refused) -> None:
        """The log cannot be read: there will be no machine until that is mended."""
        self._vacate(refused.code, refused.code)
        self.refusal_text = refused.message

    def retire(self) -> None:
        """The partition is no longer led here."""
        self._vacate(ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)

    def _vacate(self, refusal: ErrorCode, code: ErrorCode) -> None:
        self.shard = None
        self.refusal, self.refusal_text = refusal, None
        self._incarnation += 1
        self._records, self._bytes, self._rows = [], 0, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer(Refused(code))


def _tick(shard: Machine, now_ms: int) -> Decision:
    return shard.tick(now_ms)
