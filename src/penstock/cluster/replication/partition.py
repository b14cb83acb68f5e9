"""One replica of a partition on this node: its log, its role, and who waits for it.

A replica leads or follows; which, its record in the image says, and it changes on the loop with
the image. Partitions are made as followers.

A record is committed when it is on the disk of every in-sync replica (`leading`); with one
replica that means when it is on ours. Only committed records are shown to consumers, and only
they are acknowledged to producers that ask for all replicas. A follower knows from its leader how
far that is.

Whoever waits is parked here: producers by the offset that must be committed or durable, in order;
consumers' fetches by interest in the high watermark; replicas' fetches by interest in appends.
Nobody who waits for a leader is told of success once this node is no longer sure of being one
(`Validity`), nor once it is none: a log that a new leader may cut proves nothing.

Leaves to others: the ISR's changes (`isr`), copying (`following`), opening (`partitions`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NodeId, TopicId
from penstock.cluster.controller.elections import majority
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.leader_state import LeaderState
from penstock.log.config import LogConfig
from penstock.log.flusher import Flusher
from penstock.log.log import Appended, Log
from penstock.wire.records import BatchHeader


class Acknowledged(Protocol):
    """Something that waits for an append to be committed."""

    def committed(self, row: object, code: ErrorCode) -> None: ...


class Validity(Protocol):
    """How long this node may take itself for a leader, by the loop's clock; see `membership`."""

    @property
    def valid_until(self) -> float: ...


FOREVER = float("inf")


class Always:
    """The validity of a node that is alone."""

    valid_until = FOREVER


ALWAYS = Always()


def nobody(partition: "Partition") -> None:
    pass


def everyone(node_id: int) -> bool:
    return True


async def nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class PartitionHome:
    """What the replicas of a node have in common."""

    node_id: NodeId
    flusher: Flusher
    validity: Validity = ALWAYS
    isr_due: Callable[["Partition"], None] = nobody
    """Told of a partition whose ISR should be looked at; see `isr`."""
    role_due: Callable[["Partition"], None] = nobody
    """Told when a log that was being cut is ready for the role its record gives it."""
    save_known: Callable[[], Awaitable[None]] = nothing
    """Writes down what this node's replicas are known to hold (`watermarks`)."""
    hears: Callable[[int], bool] = everyone
    """True while that node answers; see `reach`."""


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
    level: int | None = None
    """How hard that codec tries; None: as it does by default."""
    key_schema: str | None = None
    """How the subject of keys' schemas is named; None: keys need no schema."""
    value_schema: str | None = None

    @property
    def look_inside(self) -> bool:
        """True when the records themselves must be read before the append."""
        return self.keys_required or self.codec is not None or self.needs_schemas

    @property
    def needs_schemas(self) -> bool:
        return self.key_schema is not None or self.value_schema is not None


class Partition:
    """A replica. Every method runs on the event loop, and none of them waits."""

    __slots__ = (
        "_acks",
        "_copiers",
        "_durables",
        "_flusher",
        "_home",
        "_reads",
        "_written",
        "high_watermark",
        "index",
        "is_compacting",
        "is_cutting",
        "is_starved",
        "known_max",
        "leader_epoch",
        "leading",
        "log",
        "lost_end",
        "record",
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
        record: PartitionRecord,
        rules: ProduceRules,
        home: PartitionHome,
        *,
        high_watermark: int = 0,
    ) -> None:
        """`high_watermark` is what is known from an earlier life: it may be more by now."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.record = record
        self.leader_epoch = record.leader_epoch
        self.rules = rules
        self.leading: LeaderState | None = None
        """What there is to know while this node is the leader; None while it follows."""
        self.is_cutting = False
        """Whether a worker is changing the log's files to the leader's likeness: nobody reads,
        and nobody leads, until `was_cut`."""
        self.is_compacting = False
        """Whether a worker is rewriting sealed segments: retention leaves them alone until then;
        see `compacting`."""
        self.is_starved = False
        """Whether the last append failed although the log is sound: the disk is full, say."""
        self.high_watermark: int = max(log.start_offset, min(high_watermark, log.end_offset))
        self.lost_end = high_watermark if log.offline is not None else 0
        """Up to where a log that is offline is known to have held what was committed."""
        self.known_max: int | None = None
        """Offset at which the log is about to be cut, although more of it was committed."""
        self._home = home
        self._flusher = home.flusher
        self._acks: deque[tuple[int, Acknowledged, object]] = deque()
        self._written: deque[tuple[int, Acknowledged, object]] = deque()
        self._durables: deque[tuple[int, Callable[[], None]]] = deque()
        # Dicts for their order: fetches are woken in the order in which they came.
        self._reads: dict[Callable[[], None], None] = {}
        self._copiers: dict[Callable[[], None], None] = {}
        log.on_durable = self.advance

    @property
    def node_id(self) -> NodeId:
        return self._home.node_id

    @property
    def is_leader(self) -> bool:
        return self.leading is not None

    @property
    def is_settled(self) -> bool:
        """Whether the leader's high watermark has reached its epoch's start: only then does it
        tell what was committed before (KIP-207)."""
        leading = self.leading
        return leading is not None and self.high_watermark >= leading.epoch_start

    @property
    def known_end(self) -> int:
        """Below it everything was committed and on this node's disk; see `watermarks`."""
        known = max(self.lost_end, min(self.high_watermark, self.log.synced_offset))
        return known if self.known_max is None else min(known, self.known_max)

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    # -- roles ------------------------------------------------------------------------------

    def lead(self, record: PartitionRecord, min_isr: int, now_s: float) -> None:
        """Takes the role with `record`, or learns of a newer one in the same epoch."""
        assert not self.is_cutting, "a log that is being cut leads nothing"
        leading = self.leading
        if leading is None or record.leader_epoch > self.leader_epoch:
            # Acknowledgements that wait since an earlier epoch of ours go on waiting: what they
            # wait for is in this log, and this log is now the one that counts.
            self.record, self.leader_epoch = record, record.leader_epoch
            end_offset = self.log.end_offset
            self.leading = LeaderState(self._home.node_id, record, min_isr, end_offset, now_s)
            self._wake_all()
        else:
            has_left = leading.adopt(record, min_isr, now_s)
            self.record = leading.record
            if has_left:
                for wake in tuple(self._copiers):
                    wake()
            if leading.is_under_min:
                self._tell(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, self._acks)
        self.advance()

    def follow(self, record: PartitionRecord) -> None:
        """Another node leads, or none; whoever waits for this one as a leader is told."""
        was_leader, self.leading = self.leading is not None, None
        is_news = record.leader_epoch != self.leader_epoch
        self.record, self.leader_epoch = record, record.leader_epoch
        if was_leader:
            self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif is_news:
            self._wake_all()

    def check_epoch(self, epoch: int) -> None:
        """Fences a client whose idea of the leader is older or newer than ours (KIP-320)."""
        if epoch >= 0 and epoch != self.leader_epoch:
            raise Refused(
                ErrorCode.FENCED_LEADER_EPOCH
                if epoch < self.leader_epoch
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The last epoch at or below `epoch` and where it ended; (-1, -1) when not known here."""
        found = self.log.epoch_end(epoch)
        if found[1] < 0 <= epoch <= self.leader_epoch and self.leading is not None:
            # Newer than any in the log, in which this leader has written nothing yet: what
            # others have of such an epoch was never committed.
            return self.log.epochs.latest, self.log.end_offset
        return found

    def is_valid(self) -> bool:
        """Whether this node may still take itself for the leader."""
        if self.leading is None:
            return False
        valid_until = self._home.validity.valid_until
        return valid_until == FOREVER or asyncio.get_running_loop().time() < valid_until

    def is_in_touch(self) -> bool:
        """True while this node leads for certain and hears enough replicas to commit.

        A leader that was replaced because others cannot reach it may be the last to learn of it.
        """
        leading = self.leading
        if leading is None or not self.is_valid():
            return False
        record = leading.record
        others = sum(node != self.node_id and self._home.hears(node) for node in record.isr)
        return others + 1 >= min(majority(record), len(record.isr))

    # -- appending as the leader ------------------------------------------------------------

    def append(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, transaction_version: int = 0
    ) -> Appended:
        """Writes one checked batch. Not acknowledged before `when_committed` says so."""
        if self.leading is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        try:
            appended = log.append(
                batch, header, self.leader_epoch, now_ms, transaction_version=transaction_version
            )
        except OSError:
            self.advance()  # If the log went offline, those who wait for it hear of it.
            self.starve()
            raise
        self.is_starved = False
        if not appended.duplicate:
            if log.config.page_cache:
                self.advance()
            else:
                self._flusher.mark(log)
            for wake in self._copiers:
                wake()
        return appended

    def when_committed(self, end_offset: int, waiter: Acknowledged, row: object) -> bool:
        """True if everything below `end_offset` is committed; else the waiter is told later."""
        if end_offset <= self.high_watermark:
            return True
        self._acks.append((end_offset, waiter, row))
        return False

    def when_written(self, end_offset: int, waiter: Acknowledged, row: object) -> bool:
        """As `when_committed`, for those who ask for no more than our own disk (acks=1)."""
        if end_offset <= self.log.durable_offset:
            return True
        self._written.append((end_offset, waiter, row))
        return False

    # -- replicas ---------------------------------------------------------------------------

    def replica_fetched(
        self, node_id: int, broker_epoch: int, offset: int, now_s: float, *, start_offset: int = -1
    ) -> None:
        """A follower fetches from `offset`: everything below is on its disk, and as it is here."""
        leading = self.leading
        if leading is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        copy = leading.fetched(node_id, broker_epoch, offset, self.log.end_offset, now_s)
        if copy is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {node_id} has no replica of it")
        copy.start_offset = start_offset
        self.advance()
        if leading.may_join(node_id, self.high_watermark):
            self._home.isr_due(self)

    def starve(self) -> None:
        """An append failed: others may have to go on without this replica (`isr`)."""
        self.is_starved = True
        self._home.isr_due(self)

    def copied(self) -> None:
        """Batches were appended from the leader; they are made durable."""
        if self.log.config.page_cache:
            self.advance()
        else:
            self._flusher.mark(self.log)

    def when_durable(self, offset: int, done: Callable[[], None]) -> None:
        """`done()` runs once: at once if everything below `offset` is durable, else when it is,
        or never will be, because the log was cut, closed or failed. Look at the log."""
        if offset <= self.log.durable_offset or self.log.offline is not None:
            done()
        else:
            self._durables.append((offset, done))

    def learn_high_watermark(self, offset: int) -> None:
        """What the leader says is committed, as far as it has been copied."""
        reached = min(offset, self.log.end_offset)
        if self.leading is None and reached > self.high_watermark:
            self.high_watermark = reached
            for wake in tuple(self._reads):
                wake()

    def adopt(self, log: Log) -> None:
        """Goes on with another log in the place of one that is damaged; `was_cut` follows."""
        self.log.on_durable = None
        self.lost_end = 0
        self.log = log
        log.on_durable = self.advance

    async def lower_known(self, offset: int) -> None:
        """The log is about to end at `offset`: whoever starts after a crash in the middle must not
        take that for a loss. Raises what the disk does."""
        if offset < self.known_end:
            self.known_max = offset
            await self._home.save_known()

    def was_cut(self) -> None:
        """The log was cut, or started over, and is whole again."""
        self.known_max = None
        start, end = self.log.start_offset, self.log.end_offset
        self.high_watermark = max(start, min(self.high_watermark, end))
        self._release_durables(everyone=True)
        self._wake_all()
        self._home.role_due(self)

    # -- waiting ----------------------------------------------------------------------------

    def watch(self, wake: Callable[[], None]) -> None:
        """Calls `wake` at every progress of the high watermark, until `unwatch`."""
        self._reads[wake] = None

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._reads.pop(wake, None)

    def watch_appends(self, wake: Callable[[], None]) -> None:
        """Calls `wake` at every append and change of role, until `unwatch_appends`.

        Within an append, so it must not come back here: it makes a note, and acts on it later.
        """
        self._copiers[wake] = None

    def unwatch_appends(self, wake: Callable[[], None]) -> None:
        self._copiers.pop(wake, None)

    def advance(self) -> None:
        """The log became durable further on, or failed; or another replica's did."""
        log = self.log
        if log.offline is not None:
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if self._durables:
            self._release_durables()
        leading = self.leading
        if leading is None:
            return
        reached = log.durable_offset
        if self._written:
            self._release(self._written, reached)
        if not leading.is_alone:
            reached = leading.high_watermark(reached, asyncio.get_running_loop().time())
        if reached <= self.high_watermark:
            return
        self.high_watermark = reached
        if self._acks:
            self._release(self._acks, reached)
        if self._reads:
            for wake in tuple(self._reads):
                wake()

    def _release(self, acks: deque[tuple[int, Acknowledged, object]], reached: int) -> None:
        """Acknowledges what waits for no more than `reached`."""
        valid_until = self._home.validity.valid_until
        if valid_until != FOREVER and asyncio.get_running_loop().time() >= valid_until:
            self._tell(ErrorCode.NOT_LEADER_OR_FOLLOWER, acks)
            return
        while acks and acks[0][0] <= reached:
            _, waiter, row = acks.popleft()
            waiter.committed(row, ErrorCode.NONE)

    def _release_durables(self, *, everyone: bool = False) -> None:
        durables = self._durables
        while durables and (everyone or durables[0][0] <= self.log.durable_offset):
            durables.popleft()[1]()

    def _tell(self, code: ErrorCode, acks: deque[tuple[int, Acknowledged, object]]) -> None:
        """Whoever waits there now waits no longer. Others may come meanwhile, and stay."""
        for _ in range(len(acks)):
            if not acks:
                return
            _, waiter, row = acks.popleft()
            waiter.committed(row, code)

    def _wake_all(self) -> None:
        for wake in (*self._reads, *self._copiers):
            wake()

    def fence(self) -> None:
        """This node cannot be sure any longer that it leads: acknowledgements end."""
        self._tell(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._written)
        self._tell(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._acks)

    def fail(self, code: ErrorCode) -> None:
        """Nobody waits for what cannot come: all are told."""
        self._tell(code, self._written)
        self._tell(code, self._acks)
        self._release_durables(everyone=True)
        self._wake_all()

    # -- the log ----------------------------------------------------------------------------

    def configure(self, config: LogConfig, rules: ProduceRules) -> None:
        """Takes over a changed config; it holds from the next batch on."""
        self.log.config = config
        self.log.producers.expiration_ms = config.producer_expiration_ms
        self.rules = rules

    def flush(self) -> None:
        """Has what is not yet durable (a moved start offset, say) made so."""
        self._flusher.mark(self.log)

    async def flushed(self) -> None:
        """Returns when no flush of the log is running or due."""
        await self._flusher.settle(self.log)

    def hold(self) -> AbstractAsyncContextManager[None]:
        """Keeps flushes away from the log while its files are changed; see `Flusher.hold`."""
        return self._flusher.hold(self.log)

    async def delete_before(self, offset: int) -> None:
        """Moves the start of the log up (DeleteRecords); durable when this returns."""
        self.log.delete_before(offset)
        self.truncated()
        self._flusher.mark(self.log)
        await self._flusher.settle(self.log)
        self.log.require_online()

    def truncated(self) -> None:
        """The start of the log moved; fetches parked below it must look again."""
        self.high_watermark = max(self.high_watermark, self.log.start_offset)
        self._wake_all()

    def close(self, reason: str, code: ErrorCode) -> None:
        """This partition is not served here any longer; all who wait are told `code`."""
        self.log.fail(reason)
        # The log and its open files go with the last reference, so there must be no circle.
        self.log.on_durable = None
        self.leading = None
        self.fail(code)
