"""Queues that are open on this node: one for each group and partition that is led here.

A queue is opened on first use: its state is read from its shard (`state_store`), which fences
earlier leaders of the partition; a group without state begins where `share.auto.offset.reset` says,
and that is persisted before anything is delivered. It is closed when leadership ends, when its
group or topic is deleted, when its state cannot be persisted, and when it was unused for
`IDLE_SECONDS`. The next use opens it again.

Config changes apply: a group's or a topic's rules of delivery hold from the next record on.
Elsewhere: what happens inside a queue (`open_queue`), records given up (`dead_letter_writer`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.image import Image, TopicImage
from penstock.cluster.replication.partition import Partition
from penstock.coordinator.queues.dead_letter_writer import DeadLetterWriter
from penstock.coordinator.queues.open_queue import Loaded, OpenQueue, QueueCounters
from penstock.coordinator.queues.policy import (
    LeaseSettings,
    QueueSettings,
    lease_settings_of,
    settings_of,
)
from penstock.coordinator.queues.state_store import QueueStateStore
from penstock.coordinator.runtime.internal_topics import InternalTopics
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.state.queues import delivery_state, state_shard
from penstock.state.queues.deduplication import DedupWindow
from penstock.state.queues.delivery import Delivery
from penstock.state.queues.delivery_headers import Intake
from penstock.state.queues.delivery_state import QueueState, Snapshot
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.records import read_header

log = logging.getLogger("penstock.queues")

QUEUES_MAX = 100_000
IDLE_SECONDS = 600.0
SWEEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """Position and lag of a queue, for administration."""

    start_offset: int
    leader_epoch: int
    lag: int
    """Records that exist and are not finished."""


@dataclass(slots=True)
class _Open:
    queue: OpenQueue
    settings: QueueSettings
    used: float


class QueueCoordinator:
    """This node's queues."""

    def __init__(
        self,
        around: HostContext,
        configs: BrokerConfigs,
        topics: InternalTopics,
        dead_letter_writer: DeadLetterWriter,
    ) -> None:
        self.around = around
        self._configs = configs
        self._generation = configs.generation
        self._dead_letter_writer = dead_letter_writer
        self.keeping = QueueStateStore(around, configs, topics)
        self.counts = QueueCounters()
        self._open: dict[QueueKey, _Open] = {}
        self._by_place: dict[tuple[bytes, int], dict[OpenQueue, None]] = {}
        self._opening: dict[QueueKey, asyncio.Task[OpenQueue]] = {}
        self._leases: dict[str, LeaseSettings] = {}

    async def run(self) -> None:
        """Loads shards of queue state, and closes unused queues, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.keeping.run())
            tasks.create_task(self._dead_letter_writer.run())
            tasks.create_task(self._sweep())

    def close(self) -> None:
        """Closes all queues because the node stops: no call is answered any more."""
        for task in list(self._opening.values()):
            task.cancel()
        for queue in list(self.queues()):
            queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # -- finding ----------------------------------------------------------------------------

    def queues(self) -> Iterator[OpenQueue]:
        for opened in list(self._open.values()):
            yield opened.queue

    def settings(self, group: str, topic: TopicImage) -> QueueSettings:
        return settings_of(self.around.watcher.image, self._configs, group, topic)

    def lease_settings(self, group: str) -> LeaseSettings:
        """Called at every fetch, so it is computed once for each change of configs."""
        known = self._leases.get(group)
        if known is None:
            image = self.around.watcher.image
            known = self._leases[group] = lease_settings_of(image, self._configs, group)
        return known

    def find(self, key: QueueKey) -> OpenQueue | None:
        """Returns the queue, if it is open."""
        opened = self._open.get(key)
        if opened is None:
            return None
        opened.used = asyncio.get_running_loop().time()
        return opened.queue

    def find_quietly(self, key: QueueKey) -> OpenQueue | None:
        """Returns the queue without marking it as used."""
        opened = self._open.get(key)
        return None if opened is None else opened.queue

    async def open(
        self, key: QueueKey, *, creates: bool = True, reset: str | None = None
    ) -> OpenQueue:
        """Returns the queue, opened if necessary; raises Refused, perhaps only temporarily.

        `creates`: also if the group has no offset in the partition yet; then it begins where
        `reset` says, or else `share.auto.offset.reset`.
        """
        queue = self.find(key)
        if queue is not None:
            return queue
        task = self._opening.get(key)
        if task is None:
            self.led_partition(key)
            if len(self._open) + len(self._opening) >= QUEUES_MAX:
                raise Refused(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    "too many queues are open on this node: retry later",
                )
            task = asyncio.get_running_loop().create_task(self._open_now(key, creates, reset))
            task.add_done_callback(lambda done: self._opened(key, done))
            self._opening[key] = task
        # Several callers may wait for one opening: a cancelled one does not end it.
        return await asyncio.shield(task)

    def led_partition(self, key: QueueKey) -> Partition:
        """Returns the partition of a queue, if it is led here."""
        topic = self.topic_of(key)
        partition = self.around.partitions.get(topic.name, key.partition)
        if partition is None or partition.topic_id != key.topic_id:
            is_known = 0 <= key.partition < len(topic.partitions)
            raise Refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if is_known
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return partition

    def topic_of(self, key: QueueKey) -> TopicImage:
        topic = self.around.watcher.image.topics_by_id.get(TopicId(key.topic_id))
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    def _opened(self, key: QueueKey, done: "asyncio.Task[OpenQueue]") -> None:
        self._opening.pop(key, None)
        if not done.cancelled():
            done.exception()  # Waiting callers got the error.

    # -- opening ----------------------------------------------------------------------------

    async def _open_now(self, key: QueueKey, creates: bool, reset: str | None) -> OpenQueue:
        await self.keeping.ensure()
        partition = self.led_partition(key)
        epoch = partition.leader_epoch
        settings = self.settings(key.group, self.topic_of(key))
        kept, loaded = await self._load(key, partition)
        if kept is None and not creates:
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"share group {key.group} has not read this partition"
            )
        if kept is None:
            begins = settings if reset is None else replace(settings, reset=reset)
            start = await self._resolve_start(partition, begins)
            payload = delivery_state.encode_snapshot(Snapshot(start))
            await self.keeping.write(key, epoch, 0, payload, True)
            kept, loaded = QueueState(Snapshot(start)), Loaded(snapshot_bytes=len(payload))
        if self.led_partition(key) is not partition or partition.leader_epoch != epoch:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        window_ms = settings.dedup_window_ms
        read_from = None
        if kept.has_ids and window_ms:
            read_from = await self._look_back(partition, kept.start, window_ms)
            if self.led_partition(key) is not partition or partition.leader_epoch != epoch:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        kept.bound(self.around.time.now_ms())
        queue = OpenQueue(
            key,
            partition,
            Delivery(settings.policy, kept),
            loaded,
            Intake(
                settings.policy.order,
                DedupWindow(window_ms) if window_ms else None,
                dedups_by_key=settings.dedups_by_key,
            ),
            self.keeping,
            self.around.workers,
            self.around.time,
            on_given_up=self._on_given_up,
            closed=self._closed,
            unreadable=partial(self.around.partitions.read_failed, partition),
            counts=self.counts,
            committed_only=settings.committed_only,
            read_from=read_from,
        )
        self._open[key] = _Open(queue, settings, asyncio.get_running_loop().time())
        self._by_place.setdefault((partition.topic_id, partition.index), {})[queue] = None
        queue.start()
        return queue

    async def _load(self, key: QueueKey, partition: Partition) -> tuple[QueueState | None, Loaded]:
        """Loads the state of a queue, if it has any."""
        found = await self.keeping.read(key, partition.leader_epoch)
        if found.snapshot is None:
            return None, Loaded()
        return build(key, found)

    async def _look_back(self, partition: Partition, start: int, window_ms: int) -> int:
        """Returns the first offset whose id a record from `start` on may repeat."""
        files, workers = partition.log, self.around.workers
        span = None
        if files.start_offset <= start:
            span = files.locate(start, 1, partition.high_watermark)
        batch = b"" if span is None else await workers.run(span.read)
        since_ms = read_header(batch).base_timestamp if batch else self.around.time.now_ms()
        found = await workers.run(files.offset_for_time, since_ms - window_ms)
        return start if found is None else min(found[0], start)

    async def _resolve_start(self, partition: Partition, settings: QueueSettings) -> int:
        if not partition.is_settled:
            raise Refused(ErrorCode.OFFSET_NOT_AVAILABLE)
        files = partition.log
        if settings.reset == "earliest":
            return files.start_offset
        back_ms = settings.reset_back_ms
        if back_ms is not None:
            since_ms = self.around.time.now_ms() - back_ms
            found = await self.around.workers.run(files.offset_for_time, since_ms)
            if found is not None:
                return min(found[0], partition.high_watermark)
        if settings.committed_only:
            return partition.last_stable_offset
        return partition.high_watermark

    def kept_from(self, partition: Partition, now_ms: int) -> int | None:
        """Returns the first offset that retention must keep for a partition's queues."""
        retention_ms = partition.log.config.retention_ms
        found = [
            queue.machine.kept_from(now_ms, retention_ms)
            for queue in self._by_place.get((partition.topic_id, partition.index), ())
            if queue.partition is partition
        ]
        return min((offset for offset in found if offset is not None), default=None)

    # -- closing ----------------------------------------------------------------------------

    def _closed(self, queue: OpenQueue) -> None:
        opened = self._open.get(queue.key)
        if opened is not None and opened.queue is queue:
            del self._open[queue.key]
            place = queue.key.topic_id, queue.key.partition
            self._by_place[place].pop(queue, None)
            if not self._by_place[place]:
                del self._by_place[place]
        self._dead_letter_writer.forget(queue)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for opened in list(self._open.values()):
                kept = opened.queue.machine.kept
                # Retention asks open queues which delayed records they hold.
                delayed = opened.queue.machine.delayed_count
                is_needed = opened.queue.waiting or kept.leased or kept.archived or delayed
                if is_needed:
                    opened.used = loop.time()
                elif loop.time() - opened.used >= IDLE_SECONDS:
                    opened.queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _on_given_up(self, queue: OpenQueue) -> None:
        opened = self._open.get(queue.key)
        if opened is not None:
            self._dead_letter_writer.wake(queue, opened.settings.dead_letter_topic)

    # -- following the cluster --------------------------------------------------------------

    def follow(self, before: Image, after: Image) -> None:
        """Called at every change of the image: deletes states of deleted topics, reads configs."""
        self.keeping.follow(before, after)
        if (
            before.group_configs is after.group_configs
            and before.topics is after.topics
            and self._generation == self._configs.generation
        ):
            return
        self._generation = self._configs.generation
        self._leases.clear()
        for opened in list(self._open.values()):
            topic = after.topics_by_id.get(TopicId(opened.queue.key.topic_id))
            if topic is not None:
                self._reconfigure(opened, self.settings(opened.queue.key.group, topic))

    def _reconfigure(self, opened: _Open, settings: QueueSettings) -> None:
        old, opened.settings = opened.settings, settings
        if (
            old.policy.order is not settings.policy.order
            or old.committed_only != settings.committed_only
            or old.dedup_window_ms != settings.dedup_window_ms
            or old.dedups_by_key != settings.dedups_by_key
        ):
            # Records that have arrived are in the wrong key queues now.
            opened.queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        else:
            opened.queue.machine.policy = settings.policy

    # -- administration ---------------------------------------------------------------------

    async def describe(self, key: QueueKey) -> QueueStanding | None:
        """Returns a queue's standing, whether it is open or closed; None: it has no state."""
        partition = self.led_partition(key)
        queue = self.find_quietly(key)
        kept = queue.machine.kept if queue is not None else await self.look_up(key)
        if kept is None:
            return None
        there = max(partition.high_watermark, kept.start) - kept.start
        return QueueStanding(kept.start, partition.leader_epoch, max(there - len(kept.finished), 0))

    async def look_up(self, key: QueueKey) -> QueueState | None:
        """Returns the stored state of a closed queue, if it has any."""
        partition = self.led_partition(key)
        if self.keeping.host.topic not in self.around.watcher.image.topics:
            return None  # The queue has no stored state.
        kept, _ = await self._load(key, partition)
        return kept

    async def move(self, key: QueueKey, start: int) -> None:
        """Restarts at `start`, also without earlier state."""
        await self.rewrite(
            key, lambda snapshot: delivery_state.restarted(snapshot, start), Snapshot(start)
        )

    async def rewrite(
        self,
        key: QueueKey,
        change: Callable[[Snapshot], Snapshot],
        default: Snapshot | None = None,
    ) -> None:
        """Rewrites the stored state of a queue, closing it first; `default` if there is none."""
        partition = self.led_partition(key)
        await self.keeping.ensure()
        self._close(key, "its state was changed by an administrator")
        found = await self.keeping.read(key, partition.leader_epoch)
        if found.snapshot is not None:
            kept, _ = build(key, found)
            snapshot = change(kept.snapshot())
        elif default is not None:
            snapshot = default
        else:
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"share group {key.group} has not read this partition"
            )
        payload = delivery_state.encode_snapshot(snapshot)
        await self.keeping.write(key, partition.leader_epoch, found.number, payload, True)

    async def forget(self, key: QueueKey) -> None:
        """Deletes the state: the group is gone, or no longer reads the topic."""
        self._close(key, "its group is gone")
        await self.keeping.ensure()
        await self.keeping.forget(key)

    def _close(self, key: QueueKey, why: str) -> None:
        opened = self._open.get(key)
        if opened is not None:
            opened.queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, why))


def build(key: QueueKey, found: state_shard.StoredQueueState) -> tuple[QueueState, Loaded]:
    """Builds a queue's state from its snapshot and the deltas after it."""
    assert found.snapshot is not None
    try:
        kept = QueueState(delivery_state.decode_snapshot(found.snapshot))
        for delta in found.deltas:
            for op in delivery_state.decode_ops(delta):
                kept.apply(op)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the state of {key.group} cannot be read: {error}") from error
    size = sum(map(len, found.deltas))
    return kept, Loaded(found.number, len(found.deltas), size, len(found.snapshot))
