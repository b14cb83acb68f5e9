"""Every partition that lives on this node, kept in line with the image.

Opening and removing run on workers (`directories`), one reconciliation at a time, in the order of
the images; `reached` tells when the node has acted on a revision. A topic that is gone stops being
served with the very image that says so: what is written to it later would be acknowledged, and
then removed with its files.

What the disk refuses to open or to remove is reported and tried again every `RETRY_SECONDS`; the
other partitions serve on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NodeId, TopicId
from penstock.base.ports import Delete, Disk, Store, UnknownResult, WallClock, Workers
from penstock.cluster import keys
from penstock.cluster.configs import BrokerConfigs, TopicConfig, resolve_topic
from penstock.cluster.directories import Directories, Opening, directory_of
from penstock.cluster.image import INTERNAL_TOPICS, Image, Topic
from penstock.cluster.partition import Partition, ProduceRules
from penstock.log.flusher import Flusher
from penstock.log.log import CleanState, Log
from penstock.wire.compression import Codec

log = logging.getLogger("penstock.partitions")

OPENERS = 4
"""Logs opened at once: they wait for the disk, and it syncs several as fast as one."""
RETRY_SECONDS = 5.0
Key = tuple[str, int]


def rules_of(config: TopicConfig) -> ProduceRules:
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
    )


class Partitions:
    """The led partitions by topic and index."""

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
    ) -> None:
        self._node_id = node_id
        self._workers = workers
        self._store = store
        self._flusher = flusher
        self._configs = configs
        self._directories = Directories(node_id, disk, clock, root)
        self._partitions: dict[Key, Partition] = {}
        self._topics: dict[str, Topic] = {}
        self._generation = configs.generation
        self._clean: dict[str, CleanState] = {}
        self._image: Image | None = None
        self._news = asyncio.Event()
        self._unopened: dict[Key, str] = {}
        """What could not be opened, and why."""
        self._is_unfinished = False
        self._revision = -1
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._listeners: list[Callable[[], None]] = []
        self.write_refusal: str | None = None
        """Why no write is taken at the moment: the disk is nearly full. See `upkeep`."""
        self.any_look_inside = False
        """Whether some topic's batches must be opened: spares everyone else the question."""

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def led(self) -> Iterable[Partition]:
        return self._partitions.values()

    def __len__(self) -> int:
        return len(self._partitions)

    # -- following the image ----------------------------------------------------------------

    async def start(self, image: Image, clean: Mapping[str, CleanState] | None) -> None:
        """Opens what is on disk; after a crash that includes recovery."""
        self._image = image
        self._clean = dict(clean or {})
        await self._workers.run(self._directories.make_root)
        await self._reconcile(image)
        self._clean.clear()
        await self._workers.run(self._directories.report_strays, image)

    def follow(self, before: Image, after: Image) -> None:
        """Called at every change of the image."""
        self._image = after
        if before.topics is not after.topics:
            self._drop_gone(after)
        self._news.set()

    async def run(self) -> None:
        """Acts on each new image until cancelled."""
        while True:
            try:
                async with asyncio.timeout(RETRY_SECONDS if self._is_unfinished else None):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            assert self._image is not None
            await self._reconcile(self._image)

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener()` runs on the loop after every reconciliation; it must not wait."""
        self._listeners.append(listener)

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
        retried = {name for name, _ in self._unopened}
        missing: list[Opening] = []
        for name, topic in image.topics.items():
            if self._topics.get(name) is topic and not stale and name not in retried:
                continue
            missing += self._apply(topic)
        if missing:
            await self._open(missing)
        self._done(image.revision)
        for topic_id in image.deleted:
            await self._remove(topic_id)

    def _apply(self, topic: Topic) -> list[Opening]:
        """Tells open partitions of their topic's state; the ones that are yet to be opened."""
        config = resolve_topic(topic.configs, self._configs)
        missing = []
        for index, state in enumerate(topic.partitions):
            partition = self._partitions.get((topic.name, index))
            if partition is not None:
                partition.configure(config.log, rules_of(config))
                partition.leader_epoch = state.leader_epoch
            elif self._node_id in state.replicas:
                missing.append(Opening(topic, index, config))
        self._topics[topic.name] = topic
        return missing

    def _done(self, revision: int) -> None:
        self._revision = revision
        self.any_look_inside = any(
            p.rules.look_inside
            for p in self._partitions.values()
            if p.topic not in INTERNAL_TOPICS  # Clients cannot write to those.
        )
        for listener in self._listeners:
            listener()
        waiters, self._waiters = self._waiters, []
        for wanted, future in waiters:
            if wanted > revision:
                self._waiters.append((wanted, future))
            elif not future.done():
                future.set_result(None)

    # -- opening and removing ---------------------------------------------------------------

    async def _open(self, missing: list[Opening]) -> None:
        shares = [missing[start::OPENERS] for start in range(min(OPENERS, len(missing)))]
        try:
            logs = await asyncio.gather(
                *(
                    self._workers.run(self._directories.open_all, share, self._clean)
                    for share in shares
                )
            )
        except Refused as refused:
            log.warning("partitions are opened later: %s", refused)
            self._unopened.update((one.key, str(refused)) for one in missing)
            self._is_unfinished = True
            return
        for number, opening in enumerate(missing):
            self._take(opening, logs[number % OPENERS][number // OPENERS])

    def _take(self, opening: Opening, opened: Log | OSError) -> None:
        """Serves what was opened, unless its topic has gone meanwhile."""
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
        self._partitions[key] = Partition(
            topic.name,
            topic.id,
            opening.index,
            opened,
            topic.partitions[opening.index].leader_epoch,
            rules_of(opening.config),
            self._flusher,
        )

    def _drop_gone(self, image: Image) -> None:
        for name, old in list(self._topics.items()):
            new = image.topics.get(name)
            if new is None or new.id != old.id:
                self._drop(old)

    def _drop(self, topic: Topic) -> None:
        """The topic is gone: nobody waits for it any longer. Its files go in `_remove`."""
        del self._topics[topic.name]
        for index in range(len(topic.partitions)):
            self._unopened.pop((topic.name, index), None)
            partition = self._partitions.pop((topic.name, index), None)
            if partition is not None:
                partition.close("the topic was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _remove(self, topic_id: TopicId) -> None:
        try:
            await self._workers.run(self._directories.remove, topic_id)
            _, states = await self._store.range(keys.partitions_prefix(topic_id))
            gone = [Delete(keys.deleted_key(topic_id)), *(Delete(e.key) for e in states)]
            await self._store.commit([], gone)
        except (UnknownResult, OSError, Refused) as error:
            # The record stays, and the next round or the next start tries again.
            log.warning("the files of a deleted topic are removed later: %s", error)
            self._is_unfinished = True

    # -- failing and closing ----------------------------------------------------------------

    def read_failed(self, partition: Partition, error: Exception) -> None:
        """Bytes on disk are not what was written, or cannot be read: that partition stops."""
        log.error("%s-%d goes offline: %s", partition.topic, partition.index, error)
        partition.log.quarantine(str(error))
        partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)

    def close(self) -> dict[str, CleanState]:
        """Blocking, on a worker, when nobody appends any more: syncs and closes every log."""
        states: dict[str, CleanState] = {}
        for partition in self._partitions.values():
            if partition.log.offline is not None:
                continue
            name = f"{directory_of(partition.topic, partition.topic_id)}/{partition.index}"
            try:
                state = partition.log.close()
            except OSError as error:
                # Without a state the next start looks into this log, and into no other.
                log.error("%s-%d was not closed: %s", partition.topic, partition.index, error)
                partition.log.fail(f"it could not be closed: {error}")
                continue
            if state is not None:
                states[name] = state
        return states

    def items(self) -> Iterator[tuple[Key, Partition]]:
        yield from self._partitions.items()
