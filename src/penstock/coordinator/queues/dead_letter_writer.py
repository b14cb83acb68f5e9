"""Writer of dead letters: copies each record that was given up exactly once, despite crashes.

Each queue has one batch of copies in progress at a time, written by an idempotent producer of its
own. The batch's records and sequence are persisted in the queue's state before it is written, and
its completion after. After a crash in between the same batch is written again, and the target log
recognizes the duplicate. Only then is a record finished.

The dead-letter topic is created on first use, with as many partitions as the source topic, and
accepts batches that are `HEADER_BYTES` larger; an existing topic with a lower limit is changed when
a batch needs it. The batch goes to the leader of its partition, here or on another node. Failures
are retried for as long as the queue is open; the next leader of the queue continues.

Elsewhere: the decision to give up (`state.queues.delivery`), the format of the copy
(`state.queues.dead_letter_format`). Bounds: `DEAD_LETTERS_MAX` records and `BATCH_BYTES` a batch.
"""

import asyncio
import logging
from collections.abc import Callable

from penstock.base.errors import Corrupt, ErrorCode, PeerError, Refused
from penstock.base.ids import TopicId
from penstock.base.ports import Random, Store, UnknownResult
from penstock.base.retry import Retry
from penstock.cluster.configs import config_changes
from penstock.cluster.configs.effective_configs import BrokerConfigs, Scope, resolve_topic
from penstock.cluster.metadata import topics
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.metadata.producer_ids import ProducerIds
from penstock.cluster.metadata.topics import NewTopic
from penstock.coordinator.queues.open_queue import OpenQueue
from penstock.coordinator.queues.record_reader import read_leased, records_of
from penstock.coordinator.runtime.internal_producer import InternalProducer
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.state.queues.dead_letter_format import RecordSource, dead_letter_record
from penstock.state.queues.delivery import DeadLetter, Delivery, DeliveryOutcome
from penstock.state.queues.delivery_state import DeadLetterBatch, DeliveryFailure, LeaseState, Op
from penstock.wire.records import Codec, Record, encode

log = logging.getLogger("penstock.queues")

DEAD_LETTERS_MAX = 500
BATCH_BYTES = 1 << 20
NO_LIMIT = 1 << 62
PLAIN_BYTES_MAX = 256 * 1024
"""Batches of dead letters above this size are compressed."""
LIMIT = "max.message.bytes"
HEADER_BYTES = 64 * 1024
"""Bytes by which a dead letter may exceed its record."""
SEQUENCE_MAX = 2**31 - 1
RETRY_SECONDS = (0.1, 30.0)
FAILURES_IN_A_MOVE = 4
"""Failures in a row that a change of leaders explains."""
CHANNEL = "dead-letters"
WRITTEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
STRANGE = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)
"""The target log has other producer state; it has nothing of the batch."""
MOVING = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)
"""The partition is new or its leader is changing: not worth a warning unless it continues."""
GONE = DeliveryFailure(0, 0, 0, 0, "gone", "the log no longer had the record")
COPY_ERRORS = (OSError, PeerError, Refused, Corrupt, UnknownResult, TimeoutError)


class DeadLetterWriter:
    """Writer of the dead letters of this node's queues."""

    def __init__(
        self,
        around: HostContext,
        configs: BrokerConfigs,
        store: Store,
        random: Random,
        producer_ids: ProducerIds,
    ) -> None:
        self._around = around
        self._configs = configs
        self._store = store
        self._random = random
        self._producer_ids = producer_ids
        self._posting = InternalProducer(around, CHANNEL)
        self._creating = asyncio.Lock()
        self._tasks: dict[OpenQueue, asyncio.Task[None]] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Writes until cancelled; raises the error that ended a writer."""
        try:
            await asyncio.shield(self._failed)
        finally:
            for task in list(self._tasks.values()):
                task.cancel()

    def wake(self, queue: OpenQueue, topic: str) -> None:
        """Starts to write the dead letters of a queue."""
        if queue not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._write_all(queue, topic))
            self._tasks[queue] = task
            task.add_done_callback(lambda done: self._ended(queue, done))

    def forget(self, queue: OpenQueue) -> None:
        """Stops writing for a closed queue."""
        task = self._tasks.pop(queue, None)
        if task is not None:
            task.cancel()

    def _ended(self, queue: OpenQueue, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(queue) is task:
            del self._tasks[queue]
        if not task.cancelled() and task.exception() is not None and not self._failed.done():
            self._failed.set_exception(task.exception())  # type: ignore[arg-type]

    # -- one queue --------------------------------------------------------------------------

    async def _write_all(self, queue: OpenQueue, topic: str) -> None:
        retry = Retry(self._random, *RETRY_SECONDS)
        while not queue.is_closed and _is_due(queue):
            try:
                await self._write_some(queue, topic)
                retry.succeeded()
            except COPY_ERRORS as error:
                is_moving = isinstance(error, Refused) and error.code in MOVING
                level = (
                    logging.INFO
                    if is_moving and retry.failures < FAILURES_IN_A_MOVE
                    else logging.WARNING
                )
                log.log(
                    level, "%s: dead letters of %s wait: %s", queue.key.group, queue.name, error
                )
                await retry.pause()

    async def _write_some(self, queue: OpenQueue, topic: str) -> None:
        planned = queue.machine.kept.dead_letter_batch
        if planned is None or not planned.offsets:
            planned = await self._plan(queue, topic)
        dead_letters = await self._compose(queue, planned)
        batch = _encode(planned, dead_letters)
        code = await self._write(planned, batch)
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            await self._widen(queue, planned, len(batch))
        elif code in STRANGE:
            log.warning(
                "%s: dead letters of %s get a new producer: %s",
                queue.key.group,
                queue.name,
                code.name,
            )
            await _keep(
                queue, lambda machine: machine.plan_dead_letters(DeadLetterBatch(-1, b"", -1, 0))
            )
        elif code not in WRITTEN:
            raise Refused(code)
        else:
            await _keep(queue, Delivery.finish_dead_letters)

    async def _plan(self, queue: OpenQueue, topic: str) -> DeadLetterBatch:
        """Decides on the next dead letters and their target, and persists the plan."""
        there = await self._ensure(queue, topic)
        index = queue.partition.index % len(there.partitions)
        before = queue.machine.kept.dead_letter_batch
        waiting = queue.machine.dead_letters()[:DEAD_LETTERS_MAX]
        found = await self._read(queue, waiting, BATCH_BYTES)
        offsets: list[int] = []
        size = 0
        for failed, record in found:
            size += 0 if record is None else _size_of(record)
            if offsets and size > BATCH_BYTES:
                break
            offsets.append(failed.offset)
        if (
            before is not None
            and (before.topic_id, before.partition) == (there.id, index)
            and before.sequence + len(offsets) <= SEQUENCE_MAX
        ):
            producer_id, sequence = before.producer_id, before.sequence
        else:
            producer_id, sequence = await self._producer_ids.next(), 0
        # Records may have been deleted from the log meanwhile, and their dead letters with them.
        left = tuple(offset for offset in offsets if offset in queue.machine.kept.archived)
        now_ms = self._around.time.now_ms()
        planned = DeadLetterBatch(producer_id, there.id, index, sequence, left, now_ms)
        await _keep(queue, lambda machine: machine.plan_dead_letters(planned))
        return planned

    async def _compose(self, queue: OpenQueue, planned: DeadLetterBatch) -> list[Record]:
        """Builds the copies; the same ones for the same plan while the log has the records."""
        archived = queue.machine.kept.archived
        # Records may have been deleted since the plan; the batch keeps its length.
        dead_letters = [
            DeadLetter(offset, archived.get(offset, GONE)) for offset in planned.offsets
        ]
        source = RecordSource(queue.partition.topic, queue.partition.index, queue.key.group)
        return [
            dead_letter_record(source, failed, record, planned.at_ms)
            for failed, record in await self._read(queue, dead_letters)
        ]

    async def _read(
        self, queue: OpenQueue, dead_letters: list[DeadLetter], bytes_max: int = NO_LIMIT
    ) -> list[tuple[DeadLetter, Record | None]]:
        """Returns the records of dead letters that the log still has, up to `bytes_max`."""
        found: dict[int, Record] = {}
        left = [LeaseState(failed.offset, failed.offset, "", 0, 0) for failed in dead_letters]
        size, reached = 0, -1
        while left and size < bytes_max:
            leased = await read_leased(
                queue.partition, self._around.workers, left, BATCH_BYTES, unpacks=True
            )
            found |= {record.offset: record for record, _ in records_of(leased)}
            size += leased.size
            reached = leased.leases[-1].last if leased.leases else left[-1].last
            left = [lease for lease in leased.left if lease.first > reached]
        read = dead_letters if not left else [one for one in dead_letters if one.offset <= reached]
        return [(failed, found.get(failed.offset)) for failed in read]

    # -- the topic --------------------------------------------------------------------------

    async def _ensure(self, queue: OpenQueue, name: str) -> TopicImage:
        """Returns the dead-letter topic, created if it does not exist; once for all queues of this
        node that need it now."""
        if name not in self._around.watcher.image.topics:
            async with self._creating:
                return await self._create(queue, name)
        return self._around.watcher.image.topics[name]

    async def _create(self, queue: OpenQueue, name: str) -> TopicImage:
        watcher = self._around.watcher
        there = watcher.image.topics.get(name)
        if there is not None:
            return there
        source = watcher.image.topics.get(queue.partition.topic)
        if source is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        config = resolve_topic(source.configs, self._configs)
        new = NewTopic(
            name,
            len(source.partitions),
            min(len(source.partitions[0].replicas), len(watcher.image.brokers)),
            configs={
                LIMIT: str(config.log.message_bytes_max + HEADER_BYTES),
                "min.insync.replicas": str(config.min_insync_replicas),
                # Records that are encrypted on disk stay so as dead letters.
                **({"encryption.enable": "true"} if config.log.encrypted else {}),
            },
        )
        try:
            plan = topics.plan_topic(new, watcher.image, self._configs, self._random)
            revision = await topics.create_topic(self._store, plan)
        except Refused as refused:
            if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            revision = 0
        log.info("%s: created %s for the dead letters of %s", queue.key.group, name, source.name)
        await watcher.reached(revision)
        await self._around.partitions.reached(revision)
        there = watcher.image.topics.get(name)
        if there is None:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} is not known here yet")
        return there

    async def _widen(self, queue: OpenQueue, planned: DeadLetterBatch, size: int) -> None:
        """Raises the dead-letter topic's batch limit to that of its source plus headers: the topic
        may be a user's own, or the source's limit was lower when it was created."""
        image = self._around.watcher.image
        there = image.topics_by_id.get(TopicId(planned.topic_id))
        source = image.topics.get(queue.partition.topic)
        if there is None or source is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        taken = resolve_topic(source.configs, self._configs).log.message_bytes_max
        limit = max(taken + HEADER_BYTES, size)
        log.warning(
            "%s: %s is raised to %d for %s, which would refuse dead letters of %s",
            queue.key.group,
            LIMIT,
            limit,
            there.name,
            source.name,
        )
        raised = config_changes.Alteration(LIMIT, config_changes.Op.SET, str(limit))
        change = config_changes.altering(Scope.TOPIC, [raised])
        revision = await config_changes.alter_topic(self._store, there.name, change)
        await self._around.watcher.reached(revision)

    # -- writing ----------------------------------------------------------------------------

    async def _write(self, planned: DeadLetterBatch, batch: bytes | bytearray) -> ErrorCode:
        """Writes the batch at its partition's leader; returns when it is committed."""
        if not batch:
            return ErrorCode.NONE
        image = self._around.watcher.image
        topic = image.topics_by_id.get(TopicId(planned.topic_id))
        if topic is None or planned.partition >= len(topic.partitions):
            return ErrorCode.UNKNOWN_PRODUCER_ID  # The topic is gone, with everything in it.
        # A newly created topic is in the image before its partitions are here.
        await self._around.partitions.reached(topic.revision)
        try:
            await self._posting.append(topic, planned.partition, memoryview(batch))
        except Refused as refused:
            return refused.code
        return ErrorCode.NONE


def _encode(planned: DeadLetterBatch, dead_letters: list[Record]) -> bytes | bytearray:
    if not dead_letters:
        return b""
    size = sum(map(_size_of, dead_letters))
    return encode(
        dead_letters,
        # Records that arrived compressed must not fill the disk now.
        codec=Codec.ZSTD if size > PLAIN_BYTES_MAX else Codec.NONE,
        producer_id=planned.producer_id,
        producer_epoch=0,
        base_sequence=planned.sequence,
    )


def _size_of(record: Record) -> int:
    own = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + own


def _is_due(queue: OpenQueue) -> bool:
    """True if there are dead letters to write, or an unfinished batch of them."""
    kept = queue.machine.kept
    return bool(
        kept.archived or (kept.dead_letter_batch is not None and kept.dead_letter_batch.offsets)
    )


async def _keep(queue: OpenQueue, decide: Callable[[Delivery], list[Op]]) -> None:
    """Persists a change of the queue; raises if that fails."""
    kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def told(refused: Refused | None) -> None:
        if kept.done():
            return
        if refused is None:
            kept.set_result(None)
        else:
            kept.set_exception(refused)

    queue.change(lambda machine, now_ms: DeliveryOutcome(decide(machine)), told)
    await kept
