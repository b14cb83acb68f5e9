"""Every partition that lives on this node, kept in line with the image.

Owns the data directory's `logs` folder: `<topic name>.<topic id>/<partition>/`. The id tells a
topic from an earlier one of the same name; the name is there for people. Opening and removing run
on workers, one reconciliation at a time, in the order of the images; `reached` tells when the
node has acted on a revision.

A directory that belongs to no topic and to no recorded deletion is left alone and reported: it is
somebody's data.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping

from penstock.base.errors import ErrorCode
from penstock.base.ids import NodeId, TopicId, show_topic_id
from penstock.base.ports import Delete, Disk, Store, UnknownResult, WallClock, Workers
from penstock.cluster import keys
from penstock.cluster.configs import BrokerConfigs, TopicConfig, resolve_topic
from penstock.cluster.image import Image, Topic
from penstock.cluster.partition import Partition, ProduceRules
from penstock.log.flusher import Flusher
from penstock.log.log import CleanState, Log
from penstock.wire.compression import Codec

log = logging.getLogger("penstock.partitions")

NAME_CHARACTERS_MAX = 200
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


def topic_directory(name: str, topic_id: TopicId) -> str:
    return f"{name[:NAME_CHARACTERS_MAX]}.{show_topic_id(topic_id)}"


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
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._store = store
        self._flusher = flusher
        self._configs = configs
        self._root = root
        self._partitions: dict[Key, Partition] = {}
        self._topics: dict[str, Topic] = {}
        self._generation = configs.generation
        self._clean: dict[str, CleanState] = {}
        self._image: Image | None = None
        self._news = asyncio.Event()
        self._revision = -1
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
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
        self._clean = dict(clean or {})
        await self._workers.run(self._make_root)
        await self._reconcile(image)
        self._clean.clear()
        await self._workers.run(self._report_strays, image)

    def _make_root(self) -> None:
        """Blocking, on a worker. Without the sync a power cut could take the whole folder."""
        self._disk.mkdir(self._root)
        self._disk.sync_dir(self._root.rpartition("/")[0])

    def follow(self, before: Image, after: Image) -> None:
        """Called at every change of the image."""
        self._image = after
        self._news.set()

    async def run(self) -> None:
        """Acts on each new image until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            assert self._image is not None
            await self._reconcile(self._image)

    async def reached(self, revision: int) -> None:
        if self._revision >= revision:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, future))
        await future

    async def _reconcile(self, image: Image) -> None:
        stale = self._generation != self._configs.generation
        self._generation = self._configs.generation
        for name, old in list(self._topics.items()):
            new = image.topics.get(name)
            if new is None or new.id != old.id:
                self._drop(old)
        missing: list[tuple[Topic, int, TopicConfig]] = []
        for name, topic in image.topics.items():
            known = self._topics.get(name)
            if known is topic and not stale:
                continue
            config = resolve_topic(topic.configs, self._configs)
            for index, state in enumerate(topic.partitions):
                partition = self._partitions.get((name, index))
                if partition is not None:
                    partition.log.config = config.log
                    partition.rules = rules_of(config)
                    partition.leader_epoch = state.leader_epoch
                elif self._node_id in state.replicas:
                    missing.append((topic, index, config))
            self._topics[name] = topic
        if missing:
            logs = await self._workers.run(self._open_all, missing)
            for (topic, index, config), opened in zip(missing, logs, strict=True):
                self._partitions[topic.name, index] = Partition(
                    topic.name,
                    topic.id,
                    index,
                    opened,
                    topic.partitions[index].leader_epoch,
                    rules_of(config),
                    self._flusher,
                )
        self.any_look_inside = any(p.rules.look_inside for p in self._partitions.values())
        for topic_id in image.deleted:
            await self._remove(topic_id)
        self._done(image.revision)

    def _done(self, revision: int) -> None:
        self._revision = revision
        waiters, self._waiters = self._waiters, []
        for wanted, future in waiters:
            if wanted > revision:
                self._waiters.append((wanted, future))
            elif not future.done():
                future.set_result(None)

    # -- opening and removing ---------------------------------------------------------------

    def _open_all(self, missing: list[tuple[Topic, int, TopicConfig]]) -> list[Log]:
        """Blocking, on a worker."""
        now_ms = self._clock.now_ms()
        logs: list[Log] = []
        parents: dict[str, None] = {}
        for topic, index, config in missing:
            name = f"{topic_directory(topic.name, topic.id)}/{index}"
            path = f"{self._root}/{name}"
            parents[f"{self._root}/{topic_directory(topic.name, topic.id)}"] = None
            opened = Log.open(self._disk, path, config.log, now_ms, self._clean.get(name))
            if opened.offline is not None:
                log.error(
                    "%s-%d is offline: %s. Its files are kept as they are; other partitions "
                    "serve on. Restore the directory from a copy, or delete the topic.",
                    topic.name,
                    index,
                    opened.offline,
                )
            logs.append(opened)
        for parent in parents:
            self._disk.sync_dir(parent)
        self._disk.sync_dir(self._root)
        return logs

    def _drop(self, topic: Topic) -> None:
        """The topic is gone: nobody waits for it any longer. Its files go in `_remove`."""
        del self._topics[topic.name]
        for index in range(len(topic.partitions)):
            partition = self._partitions.pop((topic.name, index), None)
            if partition is not None:
                partition.log.fail("the topic was deleted")
                partition.fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _remove(self, topic_id: TopicId) -> None:
        await self._workers.run(self._remove_files, topic_id)
        try:
            _, states = await self._store.range(keys.partitions_prefix(topic_id))
            gone = [Delete(keys.deleted_key(topic_id)), *(Delete(e.key) for e in states)]
            await self._store.commit([], gone)
        except (UnknownResult, OSError) as error:
            # The record stays, and the next image or the next start tries again.
            log.warning("could not forget the deleted topic: %s", error)

    def _remove_files(self, topic_id: TopicId) -> None:
        """Blocking, on a worker. Renamed first, so that a crash never leaves half a topic."""
        disk, suffix = self._disk, f".{show_topic_id(topic_id)}"
        doomed = f"{self._root}/{suffix}.deleted"
        for name in disk.listdir(self._root):
            if name.endswith(suffix):
                disk.rename(f"{self._root}/{name}", doomed)
                disk.sync_dir(self._root)
        for index in disk.listdir(doomed):
            for file in disk.listdir(f"{doomed}/{index}"):
                disk.unlink(f"{doomed}/{index}/{file}")
            disk.rmdir(f"{doomed}/{index}")
        if disk.exists(doomed):
            disk.rmdir(doomed)
            disk.sync_dir(self._root)

    def _report_strays(self, image: Image) -> None:
        known = {topic_directory(topic.name, topic.id) for topic in image.topics.values()}
        for name in self._disk.listdir(self._root):
            if name not in known and not name.startswith("."):
                log.warning("%s/%s belongs to no topic and is left alone", self._root, name)

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
            name = f"{topic_directory(partition.topic, partition.topic_id)}/{partition.index}"
            state = partition.log.close()
            if state is not None:
                states[name] = state
        return states

    def items(self) -> Iterator[tuple[Key, Partition]]:
        yield from self._partitions.items()
