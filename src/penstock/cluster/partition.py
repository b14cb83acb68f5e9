"""One partition this node leads: its log, its high watermark, and who waits for it to move.

A record is committed when it is on the disk of every in-sync replica; with one replica that means
when it is on ours. Only committed records are shown to consumers and acknowledged to producers.

Whoever waits is parked here: producers by the offset that must be committed, in order; fetches by
interest in any progress.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.log.config import LogConfig
from penstock.log.flusher import Flusher
from penstock.log.log import Appended, Log
from penstock.wire.records import BatchHeader


class Acknowledged(Protocol):
    """Something that waits for an append to be committed."""

    def committed(self, row: object, code: ErrorCode) -> None: ...


@dataclass(frozen=True, slots=True)
class ProduceRules:
    """What a topic's config asks of a batch before it is appended."""

    message_bytes_max: int
    append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    keys_required: bool
    """A compacted topic takes no record without a key."""
    codec: int | None
    """The codec that batches must have; None: whatever the producer chose."""

    @property
    def look_inside(self) -> bool:
        """True when the records themselves must be read before the append."""
        return self.keys_required or self.codec is not None


class Partition:
    """A led partition. Every method runs on the event loop, and none of them waits."""

    __slots__ = (
        "_acks",
        "_flusher",
        "_reads",
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "rules",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: TopicId,
        index: int,
        log: Log,
        leader_epoch: int,
        rules: ProduceRules,
        flusher: Flusher,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.rules = rules
        self.high_watermark: int = log.durable_offset
        self._flusher = flusher
        self._acks: deque[tuple[int, Acknowledged, object]] = deque()
        # A dict for its order: fetches are woken in the order in which they came.
        self._reads: dict[Callable[[], None], None] = {}
        log.on_durable = self.advance

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def append(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, transaction_version: int = 0
    ) -> Appended:
        """Writes one checked batch. Not acknowledged before `when_committed` says so."""
        log = self.log
        try:
            appended = log.append(
                batch, header, self.leader_epoch, now_ms, transaction_version=transaction_version
            )
        except OSError:
            self.advance()  # If the log went offline, those who wait for it hear of it.
            raise
        if not appended.duplicate:
            if log.config.page_cache:
                self.advance()
            else:
                self._flusher.mark(log)
        return appended

    def configure(self, config: LogConfig, rules: ProduceRules) -> None:
        """Takes over a changed config; it holds from the next batch on."""
        self.log.config = config
        self.log.producers.expiration_ms = config.producer_expiration_ms
        self.rules = rules

    def flush(self) -> None:
        """Has what is not yet durable (a moved start offset, say) made so."""
        self._flusher.mark(self.log)

    def hold(self) -> AbstractAsyncContextManager[None]:
        """Keeps flushes away from the log while its files are changed; see `Flusher.hold`."""
        return self._flusher.hold(self.log)

    def when_committed(self, end_offset: int, waiter: Acknowledged, row: object) -> bool:
        """True if everything below `end_offset` is committed; else the waiter is told later."""
        if end_offset <= self.high_watermark:
            return True
        self._acks.append((end_offset, waiter, row))
        return False

    def watch(self, wake: Callable[[], None]) -> None:
        """Calls `wake` at every progress of the high watermark, until `unwatch`."""
        self._reads[wake] = None

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._reads.pop(wake, None)

    def advance(self) -> None:
        """The log became durable further on, or failed."""
        log = self.log
        if log.offline is not None:
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        reached = log.durable_offset
        if reached <= self.high_watermark:
            return
        self.high_watermark = reached
        acks = self._acks
        while acks and acks[0][0] <= reached:
            _, waiter, row = acks.popleft()
            waiter.committed(row, ErrorCode.NONE)
        if self._reads:
            for wake in tuple(self._reads):
                wake()

    async def delete_before(self, offset: int) -> None:
        """Moves the start of the log up (DeleteRecords); durable when this returns."""
        self.log.delete_before(offset)
        self.truncated()
        self._flusher.mark(self.log)
        await self._flusher.settle(self.log)
        self.log.require_online()

    def truncated(self) -> None:
        """The start of the log moved; fetches parked below it must look again."""
        for wake in tuple(self._reads):
            wake()

    def fail(self, code: ErrorCode) -> None:
        """Nobody waits for what cannot come: all are told."""
        acks, self._acks = self._acks, deque()
        for _, waiter, row in acks:
            waiter.committed(row, code)
        for wake in tuple(self._reads):
            wake()

    def close(self, reason: str, code: ErrorCode) -> None:
        """This partition is not served here any longer; all who wait are told `code`."""
        self.log.fail(reason)
        # The log and its open files go with the last reference, so there must be no circle.
        self.log.on_durable = None
        self.fail(code)

    def check_epoch(self, epoch: int) -> None:
        """Fences a client whose idea of the leader is older or newer than ours (KIP-320)."""
        if epoch >= 0 and epoch != self.leader_epoch:
            raise Refused(
                ErrorCode.FENCED_LEADER_EPOCH
                if epoch < self.leader_epoch
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
