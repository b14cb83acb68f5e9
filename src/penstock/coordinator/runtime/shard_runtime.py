"""Runtime of one shard: its state machine, the internal partition it writes to, and waiting
callers.

A call asks the machine for a decision and applies its records at once. All decisions of one turn of
the loop are appended together at its end, as one batch: a busy shard pays for one append and not
for one per call. Replies are sent when that batch is committed, in order. A decision without
records is answered when everything decided before it is committed, so no reply reveals state that
may yet be lost. Effects (transaction markers) wait for the same moment.

If an append fails, or the machine breaks, memory and log no longer agree: the machine is discarded,
all waiting callers get COORDINATOR_NOT_AVAILABLE, and the host builds a new machine by replay.

Time alone (an expired session, say) decides nothing while another node may have replaced this one
without its knowledge: its writes may still become effective if it leads again, and members that
were silent here have talked to another coordinator meanwhile. Timers wait until the partition is in
touch with the cluster.

Bounds: `WAITING_MAX` calls wait at a time; a batch has `BATCH_BYTES`, or the size of one decision.
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
"""Size from which a batch is appended before the end of the turn."""
TIMER_MS_MIN = 1
OUT_OF_TOUCH_SECONDS = 0.5
"""Delay until a timer is checked again that fired while the partition was out of touch."""

S = TypeVar("S", bound=Machine)
Answer: TypeAlias = Callable[[Any], None]
"""Receives a call's reply, or the Refused instead of it."""
Effect: TypeAlias = Callable[[], None]
"""Action to run once the records that led to it are committed."""

_Row: TypeAlias = tuple[tuple[tuple[Token, Any], ...], Effect | None]
"""Replies and effect of one decision, due once it is committed."""


class ShardRuntime(Generic[S]):
    """Slot of one partition's machine, whether it has one at the moment or not."""

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
        """Code for callers while there is no machine."""
        self.refusal_text: str | None = None
        """Reason for it, if it is not temporary."""
        self.time = time
        self._codec = codec
        self._broken = broken
        self._effects = effects
        self._incarnation = 0
        self._token = 0
        self._waiting: dict[Token, Answer] = {}
        # Records decided and applied in this turn, but not appended yet.
        self._records: list[Record] = []
        self._bytes = 0
        self._rows: list[_Row] = []
        self._is_due = False
        # End of the appended records.
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # -- calls ------------------------------------------------------------------------------

    def call(self, decide: Callable[[S, Token, int], Decision], answer: Answer) -> Token:
        """Asks the machine, and calls `answer` with the reply, perhaps before this returns.

        Raises Refused if the machine refuses, if there is none, or if this node may no longer be
        the coordinator.
        """
        shard = self.require()
        if not self.partition.is_valid():
            raise Refused(ErrorCode.NOT_COORDINATOR)
        if len(self._waiting) >= WAITING_MAX:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "too many calls wait for this coordinator: retry later",
            )
        token = self._token = self._token + 1
        self._waiting[token] = answer
        try:
            self._run(shard, decide, token)
        except Refused:
            del self._waiting[token]
            raise
        return token

    def tell(self, decide: Callable[[S, int], Decision]) -> None:
        """Makes a call without a reply."""
        self._run(self.require(), decide)

    def dropped(self, token: Token) -> None:
        """Forgets a call whose caller is gone."""
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
        """Applies a decision, and appends its records with the rest of this turn."""
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
            return  # Already appended because of its size, or the machine is gone.
        rows, self._rows = self._rows, []
        self._records, self._bytes = [], 0
        if self.partition.leader_epoch != self.leader_epoch:
            # Decisions of one epoch are not written in the next.
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
        """Sends replies and runs the effect once everything decided so far is committed."""
        if self._records:
            self._rows.append((replies, effect))
        else:
            self._when_committed([(replies, effect)])

    def _when_committed(self, rows: list[_Row]) -> None:
        if self.partition.when_committed(self._written, self, (self._incarnation, rows)):
            self._hand_out(rows)

    def committed(self, row: object, code: ErrorCode) -> None:
        """Called when the records that `row` waits for are committed, or never will be."""
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
                return  # The machine broke meanwhile, and all callers were answered.

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

    # -- activating and retiring ------------------------------------------------------------

    def activated(self, shard: S) -> None:
        """Installs a machine that has applied everything in the log."""
        shard.loaded(self.time.now_ms())
        self.shard = shard
        self._written = self.partition.log.end_offset
        effect = self._effects(self)
        if effect is not None:
            self._promise((), effect)
        self._arm()

    def discard(self, why: str, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        """Discards the machine; the host is notified, to build a new one."""
        if self.shard is None:
            return
        level, told = logging.ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # Callers look for another coordinator.
            level, told = logging.INFO, ErrorCode.NOT_COORDINATOR
        log.log(
            level,
            "%s-%d is no longer coordinated here: %s",
            self.partition.topic,
            self.partition.index,
            why,
        )
        self._vacate(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, told)
        self._broken(self)

    def offline(self, refused: Refused) -> None:
        """Refuses calls until the unreadable log is repaired."""
        self._vacate(refused.code, refused.code)
        self.refusal_text = refused.message

    def retire(self) -> None:
        """Ends this runtime, because the partition is no longer led here."""
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
