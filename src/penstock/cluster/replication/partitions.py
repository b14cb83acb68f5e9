"""All partitions with a replica on this node, kept in line with the image.

Every open log changes role on the loop, together with the image that says so. After an unclean
restart this node does not continue an epoch in which it led before: it may have lost records of
that epoch which other replicas have. It waits for a new epoch (`isr` asks for it).

Logs are opened and removed on workers (`log_directories`), one reconciliation at a time, in the
order of the images; `reached` waits until the node has acted on a revision. A deleted topic is no
longer served as soon as the image says so: a later write would be acknowledged and then removed
with the topic's files.

If the disk refuses to open or remove a log, that is reported and retried every `RETRY_SECONDS`; the
other partitions remain available.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NodeId, TopicId
from penstock.base.ports import Disk, Store, WallClock, Workers
from penstock.cluster.configs.effective_configs import BrokerConfigs, TopicConfig, resolve_topic
from penstock.cluster.metadata import accepted_losses
from penstock.cluster.metadata.image import INTERNAL_TOPICS, Image, TopicImage
from penstock.cluster.metadata.known_metadata import Remember, remember_nothing
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.high_watermark_checkpoint import HighWatermarkCheckpoint, name_of
from penstock.cluster.replication.partition import (
    ALWAYS,
    Partition,
    ProduceRules,
    ReplicaContext,
    Validity,
    always_reachable,
    ignore_partition,
)
from penstock.cluster.storage.log_directories import (
    LogDirectories,
    Opening,
    directory_of,
    listed,
    report_offline,
)
from penstock.cluster.storage.orphan_cleanup import OrphanCleanup
from penstock.cluster.storage.write_pressure import WritePressure
from penstock.log.flusher import Flusher
from penstock.log.log import CleanState, Log
from penstock.log.persistence import close_logs
from penstock.security.keyring import Keyring
from penstock.wire.compression import Codec

log = logging.getLogger("penstock.partitions")

OPENERS = 4
"""Logs opened at once: opening waits for the disk, which syncs several as fast as one."""
RETRY_SECONDS = 5.0
PartitionName = tuple[str, int]


class Partitions:
    """Replicas on this node by topic and partition, and those that it leads."""

    def __init__(
        self,
        node_id: NodeId,
        disk: Disk,
        workers: Workers,
        clock: WallClock,
        store: Store,
        flusher: Flusher,
        configs: BrokerConfigs,
        root: str,
        *,
        validity: Validity = ALWAYS,
        keyring: Keyring | None = None,
        remember: Remember = remember_nothing,
    ) -> None:
        self._remember = remember
        self._node_id = node_id
        self._workers = workers
        self._context = ReplicaContext(
            node_id,
            flusher,
            validity,
            self._isr_due,
            self._role_due,
            self._save_known,
            lambda node: self.is_reachable(node),
        )
        self._configs = configs
        self._directories = LogDirectories(disk, clock, root, keyring)
        self._orphans = OrphanCleanup(node_id, store, workers, self._directories)
        self._disk = disk
        self._data_dir = root.rpartition("/")[0] or "."
        self._checkpoint = HighWatermarkCheckpoint(disk, self._data_dir, workers)
        self._partitions: dict[PartitionName, Partition] = {}
        self._led: dict[PartitionName, Partition] = {}
        self._min_isr: dict[str, int] = {}
        """`min.insync.replicas` by topic."""
        self._topics: dict[str, TopicImage] = {}
        self._generation = configs.generation
        self._clean: dict[str, CleanState] = {}
        self._is_unsaved = False
        self._accepted: dict[PartitionName, int] = {}
        """Replicas with an accepted loss, and where their logs begin if nothing is left."""
        self._given_up_epochs: dict[tuple[TopicId, int], int] = {}
        """Leader epochs of this node that it does not continue."""
        self._image: Image | None = None
        self._wake = asyncio.Event()
        self._unopened: dict[PartitionName, str] = {}
        """Replicas that could not be opened, with the reason."""
        self._is_unfinished = False
        self._revision = -1
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._listeners: list[Callable[[], None]] = []
        self.isr_due: Callable[[Partition], None] = ignore_partition
        """Callback: the ISR of a partition needs a check; see `isr`."""
        self.is_reachable: Callable[[int], bool] = always_reachable
        """True while that node answers; see `peer_reachability`."""
        self.pressure = WritePressure()
        """Reasons to refuse writes: a disk nearly full, backlogs."""
        self.any_look_inside = False
        """True while some topic needs its records read: the check is skipped without one."""

    @property
    def write_refusal(self) -> str | None:
        """Reason why writes are refused: the disk is nearly full. See `housekeeping`."""
        return self.pressure.refusal

    @write_refusal.setter
    def write_refusal(self, why: str | None) -> None:
        self.pressure.set_disk(why)

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, if this node leads it."""
        return self._led.get((topic, index))

    def replica(self, topic: str, index: int) -> Partition | None:
        """The partition, if this node has a replica of it, in any role."""
        return self._partitions.get((topic, index))

    def led(self) -> Iterable[Partition]:
        return self._led.values()

    def replicas(self) -> Iterable[Partition]:
        return self._partitions.values()

    def __len__(self) -> int:
        return len(self._partitions)

    # -- image changes ----------------------------------------------------------------------

    async def start(
        self,
        image: Image,
        clean: Mapping[str, CleanState] | None,
        *,
        are_logs_missing: bool = False,
        has_run_before: bool = False,
    ) -> None:
        """Opens the logs on disk; after a crash (`clean` is None) with recovery. The other
        parameters: see `high_watermark_checkpoint`."""
        self._image = image
        self._clean = dict(clean or {})
        self._give_up_unclean_epochs(image)
        await self._workers.run(self._directories.make_root)
        await self._checkpoint.load(
            self._clean, are_logs_missing=are_logs_missing, has_run_before=has_run_before
        )
        self._checkpoint.retain(
            {
                f"{directory_of(topic.name, topic.id)}/{index}": None
                for topic in image.topics.values()
                for index, record in enumerate(topic.partitions)
                if self._node_id in record.replicas
            }
        )
        await self._orphans.find_moved(image)
        await self._reconcile(image)
        self._clean.clear()
        await self._workers.run(self._directories.report_strays, image)

    def follow(self, before: Image, after: Image) -> None:
        """Applies roles and deletions; called at every change of the image."""
        self._image = after
        if before.topics is not after.topics:
            self._drop_gone(after)
            if self._take_roles(after):
                self._tell()
        self._wake.set()

    async def run(self) -> None:
        """Reconciles with each new image until cancelled."""
        while True:
            try:
                async with asyncio.timeout(RETRY_SECONDS if self._is_unfinished else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            assert self._image is not None
            await self._reconcile(self._image)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Registers `listener()`: it runs on the loop after every reconciliation, and after every
        change of roles, with the image that brought it; it must not wait."""
        self._listeners.append(listener)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    async def reached(self, revision: int) -> None:
        if self._revision >= revision:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, future))
        await future

    async def _reconcile(self, image: Image) -> None:
        self._is_unfinished = False
        stale = self._generation != self._configs.generation
        self._generation = self._configs.generation
        self._drop_gone(image)
        accepted = await self._accept_losses()
        self._is_unfinished |= not await self._orphans.remove_moved(image)
        retried = {name for name, _ in self._unopened}
        missing: list[Opening] = []
        for name, topic in image.topics.items():
            if self._topics.get(name) is topic and not stale and name not in retried:
                continue
            missing += self._apply(topic)
        if missing:
            await self._open(missing, image)
        if accepted and not self._is_unfinished:
            await self._workers.run(accepted_losses.done, self._disk, self._data_dir, accepted)
        self._is_unfinished |= any(one.log.is_lost for one in self._partitions.values())
        self._done(image.revision)
        self._is_unfinished |= not await self._orphans.remove_deleted(image)

    def _apply(self, topic: TopicImage) -> list[Opening]:
        """Applies a topic's state to open partitions; returns the replicas to open."""
        config = resolve_topic(topic.configs, self._configs)
        self._min_isr[topic.name] = config.min_insync_replicas
        missing = []
        for index, record in enumerate(topic.partitions):
            partition = self._partitions.get((topic.name, index))
            if partition is not None:
                partition.configure(config.log, produce_rules(config))
                self._assume(partition, record)
            elif self._node_id in record.replicas:
                leads = self._leads(topic.id, index, record)
                opening = Opening(topic, index, config, leads)
                known_end = self._checkpoint.known_end(opening.name)
                begins_at = self._accepted.get((topic.name, index), 0)
                missing.append(replace(opening, known_end=known_end, begins_at=begins_at))
        self._topics[topic.name] = topic
        return missing

    def _done(self, revision: int) -> None:
        self._revision = revision
        self.any_look_inside = any(
            p.rules.look_inside
            for p in self._partitions.values()
            if p.topic not in INTERNAL_TOPICS  # Clients cannot write to those.
        )
        self._tell()
        waiters, self._waiters = self._waiters, []
        for wanted, future in waiters:
            if wanted > revision:
                self._waiters.append((wanted, future))
            elif not future.done():
                future.set_result(None)

    # -- roles ------------------------------------------------------------------------------

    def _take_roles(self, image: Image) -> bool:
        """Gives every open replica its role by the image; True if one has changed."""
        has_changed = False
        for name, topic in image.topics.items():
            if self._topics.get(name) is topic:
                continue
            for index, record in enumerate(topic.partitions):
                partition = self._partitions.get((name, index))
                if partition is not None and partition.record is not record:
                    has_changed |= self._assume(partition, record)
        return has_changed

    def _assume(self, partition: Partition, record: PartitionRecord) -> bool:
        """Applies one replica's role; True if its leadership or epoch changed. Older records are
        ignored: a leader knows of its own changes before the image does."""
        known = partition.record
        if (record.leader_epoch, record.partition_epoch) < (
            known.leader_epoch,
            known.partition_epoch,
        ):
            record = known
        key = (partition.topic, partition.index)
        before = partition.is_leader, partition.leader_epoch
        if self._node_id not in record.replicas:
            self._leave(key, partition)
            return True
        if (
            self._leads(partition.topic_id, partition.index, record)
            and not partition.is_under_repair
        ):
            min_isr = self._min_isr[partition.topic]
            partition.lead(record, min_isr, asyncio.get_running_loop().time())
            self._led[key] = partition
        else:
            self._led.pop(key, None)
            partition.follow(record)
        return before != (partition.is_leader, partition.leader_epoch)

    def _leads(self, topic_id: TopicId, index: int, record: PartitionRecord) -> bool:
        given_up = self._given_up_epochs.get((topic_id, index), -1)
        return record.leader == self._node_id and record.leader_epoch > given_up

    def _give_up_unclean_epochs(self, image: Image) -> None:
        """Gives up leader epochs of logs that were not closed cleanly. A single replica may
        continue its epoch if the log was synced."""
        for topic in image.topics.values():
            config = None
            for index, record in enumerate(topic.partitions):
                name = f"{directory_of(topic.name, topic.id)}/{index}"
                if record.leader != self._node_id or name in self._clean:
                    continue
                config = config or resolve_topic(topic.configs, self._configs)
                if len(record.replicas) > 1 or config.log.page_cache:
                    self._given_up_epochs[topic.id, index] = record.leader_epoch

    def _role_due(self, partition: Partition) -> None:
        """Applies the record of a partition whose log is ready again."""
        is_ours = self._partitions.get((partition.topic, partition.index)) is partition
        if is_ours and self._assume(partition, partition.record):
            self._tell()

    def _isr_due(self, partition: Partition) -> None:
        self.isr_due(partition)

    def learn(self, partition: Partition, record: PartitionRecord) -> None:
        """Applies a record that is in the store, but perhaps not yet in the image."""
        is_ours = self._partitions.get((partition.topic, partition.index)) is partition
        if is_ours and self._assume(partition, record):
            self._tell()

    def fence(self) -> None:
        """Fails waiting acknowledgements: this node is no longer sure of its leaderships."""
        for partition in tuple(self._led.values()):
            partition.fence()

    # -- opening and removal ----------------------------------------------------------------

    async def _accept_losses(self) -> list[str]:
        """Closes lost replicas whose loss was accepted, to be reopened as they are; returns their
        names."""
        lost = {name_of(one): one for one in self._partitions.values() if one.log.is_lost}
        if not lost:
            return []
        asked = await self._workers.run(accepted_losses.asked, self._disk, self._data_dir)
        accepted, refused = [], []
        for name in asked:
            one = lost.get(name)
            if one is None or not accepted_losses.is_possible(one.record, self._node_id):
                refused.append(name)
                continue
            key = (one.topic, one.index)
            accepted.append(f"{one.topic}-{one.index}")
            self._led.pop(key, None)
            del self._partitions[key]
            self._accepted[key] = one.lost_end
            self._unopened[key] = "its loss was accepted"
            self._checkpoint.forget(name)
            one.close("its loss was accepted", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if accepted:
            log.warning("loss accepted for %s: they continue without it", listed(accepted))
        if refused:
            log.warning(
                "no loss to accept for %s: they are whole, or are copied anew from another replica "
                "once one leads",
                listed(refused),
            )
        return asked

    async def _open(self, missing: list[Opening], image: Image) -> None:
        shares = [missing[start::OPENERS] for start in range(min(OPENERS, len(missing)))]
        try:
            await self._remember(image)
            run, open_all = self._workers.run, self._directories.open_all
            logs = await asyncio.gather(*(run(open_all, share, self._clean) for share in shares))
            pairs = [(one, logs[at % OPENERS][at // OPENERS]) for at, one in enumerate(missing)]
            # Persist before serving: a replica that was served and is missing later is lost, not
            # new.
            if self._checkpoint.enter(one.name for one, found in pairs if isinstance(found, Log)):
                await self._save_known()
        except (OSError, Refused) as error:
            log.warning("partitions are opened later: %s", error)
            self._unopened.update((one.key, str(error)) for one in missing)
            self._is_unfinished = True
            return
        offline = [(o, one) for o, one in pairs if isinstance(one, Log) and one.offline is not None]
        report_offline(offline, self._data_dir)
        for opening, found in pairs:
            self._take(opening, found)

    def _take(self, opening: Opening, opened: Log | OSError) -> None:
        """Serves an opened log, unless its topic was deleted meanwhile."""
        assert self._image is not None
        key = opening.key
        topic = self._image.topics.get(opening.topic.name)
        if topic is None or topic.id != opening.topic.id:
            self._unopened.pop(key, None)
            return
        if isinstance(opened, OSError):
            reason = str(opened)
            if self._unopened.get(key) != reason:
                log.error("%s-%d cannot be opened and is tried again: %s", *key, reason)
            self._unopened[key] = reason
            self._is_unfinished = True
            return
        self._unopened.pop(key, None)
        self._accepted.pop(key, None)
        record = topic.partitions[opening.index]
        if self._node_id not in record.replicas:
            return
        partition = self._partitions[key] = Partition(
            topic.name,
            topic.id,
            opening.index,
            opened,
            record,
            produce_rules(opening.config),
            self._context,
            high_watermark=max(opening.known_end, 0),
        )
        self._assume(partition, record)

    def _drop_gone(self, image: Image) -> None:
        for name, old in list(self._topics.items()):
            new = image.topics.get(name)
            if new is None or new.id != old.id:
                self._drop(old)

    def _drop(self, topic: TopicImage) -> None:
        """Stops serving a deleted topic. Its files are removed later (`orphan_cleanup`)."""
        del self._topics[topic.name]
        self._min_isr.pop(topic.name, None)
        for index in range(len(topic.partitions)):
            self._unopened.pop((topic.name, index), None)
            self._led.pop((topic.name, index), None)
            partition = self._partitions.pop((topic.name, index), None)
            self._checkpoint.forget(f"{directory_of(topic.name, topic.id)}/{index}")
            if partition is not None:
                partition.close("the topic was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _leave(self, key: PartitionName, partition: Partition) -> None:
        """Stops serving a replica that moved away; the next reconciliation removes its files."""
        self._led.pop(key, None)
        del self._partitions[key]
        partition.close("the replica was moved away", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._checkpoint.forget(name_of(partition))
        self._orphans.schedule(partition.topic_id, partition.index)

    # -- failures ---------------------------------------------------------------------------

    def lose(self, partition: Partition, known_end: int, reason: str) -> None:
        """Takes a log offline that lacks committed records, so that the ISR drops it. The files
        are kept."""
        log.error("%s-%d goes offline: %s", partition.topic, partition.index, reason)
        partition.log.fail(reason, is_lost=True)
        partition.lost_end = max(partition.lost_end, known_end)
        partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        self.isr_due(partition)

    def read_failed(self, partition: Partition, error: Exception) -> None:
        """Takes a log offline whose bytes on disk are damaged or cannot be read."""
        log.error("%s-%d goes offline: %s", partition.topic, partition.index, error)
        partition.log.quarantine(str(error))
        partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        self.isr_due(partition)

    # -- high watermarks --------------------------------------------------------------------

    async def _save_known(self) -> None:
        await self._checkpoint.save(self._partitions.values())

    async def save_watermarks(self) -> None:
        """Writes the high watermark checkpoint if it has changed."""
        try:
            await self._save_known()
        except (OSError, Refused) as error:
            if not self._is_unsaved:
                log.warning("the high watermarks are written later: %s", error)
            self._is_unsaved = True
            return
        self._is_unsaved = False

    # -- close ------------------------------------------------------------------------------

    def close(self) -> dict[str, CleanState]:
        """Syncs and closes every log. Blocking, on a worker, after the last append."""
        states: dict[str, CleanState] = {}
        partitions = list(self._partitions.values())
        closed = close_logs([partition.log for partition in partitions])
        for partition, state in zip(partitions, closed, strict=True):
            if isinstance(state, OSError):
                # Without a state the next start scans this log, and only this one.
                log.error("%s-%d was not closed: %s", partition.topic, partition.index, state)
            elif state is not None:
                states[name_of(partition)] = state
        try:
            self._checkpoint.save_now(self._partitions.values())
        except OSError as error:
            log.warning("the high watermarks were not written: %s", error)
        return states

    def items(self) -> Iterator[tuple[PartitionName, Partition]]:
        yield from self._partitions.items()


def produce_rules(config: TopicConfig) -> ProduceRules:
    codec = None
    if config.compression_type != "producer":
        codec = (
            Codec.NONE
            if config.compression_type == "uncompressed"
            else Codec[config.compression_type.upper()]
        )
    return ProduceRules(
        message_bytes_max=config.log.message_bytes_max,
        append_time=config.append_time,
        timestamp_before_max_ms=config.timestamp_before_max_ms,
        timestamp_after_max_ms=config.timestamp_after_max_ms,
        keys_required=config.log.cleanup_compact,
        codec=codec,
        level=config.compression_level,
        key_schema=config.key_schema,
        value_schema=config.value_schema,
    )
