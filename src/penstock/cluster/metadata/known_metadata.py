"""Metadata that a node has seen in the store, and the check for an older store.

A store restored from a backup hands out producer ids a second time, and lacks the topics created
since. Its revision does not always tell: a shared etcd keeps probes, and a restored one can be
told to begin higher (`etcdutl snapshot restore --bump-revision`). So the check compares, key by
key, what never goes back in one history: the revision that last changed a key, leader epochs, the
next producer id.

`KnownMetadata` is the content of the file: the persistent part of the keyspace, as of one revision.
Secrets are not in it: users, the cluster's secret, configs that are passwords. `metadata_rebuild`
makes a store from it.

File of the metadata that a node has seen in the store: `known-metadata`. One small file,
protected by a CRC and replaced as a whole. It is persisted before anything that depends on it: a
topic with its configs before a replica of it is served here, a block of producer ids before one
of them is given away. Other changes are written within `PAUSE_SECONDS`.

A missing or damaged file is written at the next start; until then only the logs can tell that a
store is older. A file of another cluster is refused with its directory (`data_directory`). A file
older than the store is normal. Only one process writes a directory's file.
Invariants: the file never goes back to an earlier revision of one history.
Elsewhere: waiting for it (`partitions`, `producer_ids`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping

import msgspec

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId, parse_topic_id, show_topic_id
from penstock.base.ports import Disk, Workers
from penstock.cluster.configs.effective_configs import ConfigType, InvalidConfig, Scope, find
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import EMPTY, Image, path_of
from penstock.cluster.metadata.store_keys import (
    AclRecord,
    AclsRecord,
    ConfigsRecord,
    PartitionRecord,
    QuotaRecord,
    TopicRecord,
)
from penstock.log import files

FINDINGS_MAX = 5
"""Limit of findings that are listed; of the others, the number."""
_TABLES = (
    *("topics", "deleted", "acls", "quotas", "fanouts", "recovered", "next_producer_id"),
    *("cluster_configs", "broker_configs", "group_configs"),
)
Epochs = Mapping[tuple[TopicId, int], int]
"""Latest leader epoch in the log here, by partition."""


class KnownKey(msgspec.Struct, array_like=True, frozen=True):
    """A key at that time, with the store's value."""

    revision: int
    """Revision that last changed the key; 0 if unknown."""
    value: msgspec.Raw


class KnownMetadata(msgspec.Struct, frozen=True):
    cluster_id: str = ""
    revision: int = 0
    recovered: str = ""
    """Recovery that the store had been through; see `metadata_rebuild`."""
    next_producer_id: int = 0
    entries: dict[str, KnownKey] = {}

    def topics(self) -> dict[str, TopicRecord]:
        return {
            key.removeprefix(store_keys.TOPICS): store_keys.decode(TopicRecord, bytes(kept.value))
            for key, kept in self.entries.items()
            if key.startswith(store_keys.TOPICS)
        }


def known_of(image: Image, next_producer_id: int) -> KnownMetadata:
    """Returns the part of an image to persist. May run on a worker: an image never changes."""
    return KnownMetadata(
        cluster_id=image.cluster_id,
        revision=image.revision,
        recovered=image.recovered.id if image.recovered is not None else "",
        next_producer_id=max(next_producer_id, image.next_producer_id),
        entries={
            key: KnownKey(revision, msgspec.Raw(value)) for key, revision, value in _rows(image)
        },
    )


def has_changed(before: Image, after: Image) -> bool:
    """True if the file must be written again."""
    return any(getattr(before, name) is not getattr(after, name) for name in _TABLES)


def _rows(image: Image) -> Iterator[tuple[str, int, bytes]]:
    for topic in image.topics.values():
        record = TopicRecord(
            id=show_topic_id(topic.id), partitions=topic.initial, configs=dict(topic.configs)
        )
        yield store_keys.topic_key(topic.name), topic.revision, store_keys.encode(record)
        for index, state in topic.changed.items():
            key = store_keys.partition_key(topic.id, index)
            yield key, state.revision, store_keys.encode(state.record)
    for topic_id, deleted in image.deleted.items():
        yield store_keys.deleted_key(topic_id), 0, store_keys.encode(deleted)
    configs = {
        store_keys.CLUSTER_CONFIGS: image.cluster_configs,
        **{
            store_keys.broker_configs_key(node): some for node, some in image.broker_configs.items()
        },
        **{
            store_keys.group_configs_key(group): some for group, some in image.group_configs.items()
        },
    }
    for key, values in configs.items():
        told = {name: value for name, value in values.items() if not is_secret(name)}
        if told:
            yield key, 0, store_keys.encode(ConfigsRecord(values=told))
    for name, fanout in image.fanouts.items():
        yield store_keys.FANOUTS + name, 0, store_keys.encode(fanout)
    for resource, entries in image.acls.items():
        acls = AclsRecord(
            tuple(AclRecord(e.principal, e.host, e.operation, e.permission) for e in entries)
        )
        yield (
            store_keys.acls_key(resource.type, resource.pattern, resource.name),
            0,
            store_keys.encode(acls),
        )
    for entity, quotas in image.quotas.items():
        yield store_keys.QUOTAS + path_of(entity), 0, store_keys.encode(QuotaRecord(dict(quotas)))


def is_secret(name: str) -> bool:
    """True if a config is or may be a password."""
    try:
        return find(Scope.BROKER, name).type is ConfigType.PASSWORD
    except InvalidConfig:
        return "password" in name or "secret" in name or "jaas" in name


# -- check for an older store ---------------------------------------------------------------------


def findings(known: KnownMetadata, image: Image, epochs: Epochs) -> list[str]:
    """Describes the parts of the store that are older than what was seen; empty if none is."""
    found = []
    recovered = image.recovered
    has_begun_anew = (
        recovered is not None
        and recovered.id != known.recovered
        and recovered.revision >= known.revision
    )
    if not has_begun_anew:
        if known.recovered and (recovered is None or recovered.id != known.recovered):
            found.append("it is from before `recover-metadata` was last run")
        if image.revision < known.revision:
            found.append(
                f"its revision is {image.revision}, and this node has seen {known.revision}"
            )
        found += _older_keys(known, image)
    if image.next_producer_id < known.next_producer_id:
        found.append(
            f"its next producer id is {image.next_producer_id}, and this node knows of ids up to "
            f"{known.next_producer_id - 1}"
        )
    return [*found, *_older_epochs(image, epochs)]


def _older_keys(known: KnownMetadata, image: Image) -> Iterator[str]:
    """In one history, keys never go back to an earlier change."""
    for key, kept in known.entries.items():
        if key.startswith(store_keys.TOPICS):
            name = key.removeprefix(store_keys.TOPICS)
            topic = image.topics.get(name)
            if topic is not None and topic.revision < kept.revision:
                yield f"topic {name} was last changed at {topic.revision}, here at {kept.revision}"
        elif key.startswith(store_keys.PARTITIONS):
            text, _, index = key.removeprefix(store_keys.PARTITIONS).partition("/")
            topic = image.topics_by_id.get(parse_topic_id(text))
            if topic is None or int(index) >= len(topic.partitions):
                continue
            state = topic.state(int(index))
            if state.revision < kept.revision:
                before = store_keys.decode(PartitionRecord, bytes(kept.value))
                yield (
                    f"{topic.name}-{int(index)} has leader epoch {state.record.leader_epoch} and "
                    f"state {state.record.partition_epoch}, and this node has seen "
                    f"{before.leader_epoch} and {before.partition_epoch}"
                )


def _older_epochs(image: Image, epochs: Epochs) -> Iterator[str]:
    for (topic_id, index), epoch in epochs.items():
        topic = image.topics_by_id.get(topic_id)
        if topic is None or index >= len(topic.partitions):
            continue
        record = topic.partitions[index]
        if record.leader_epoch < epoch:
            yield (
                f"{topic.name}-{index} has leader epoch {record.leader_epoch}, and its log {epoch}"
            )


def has_gone_back(before: Image, after: Image, node_id: int) -> str | None:
    """Describes a partition's state that is older than its predecessor, or a topic that is gone
    although this node has a replica of it, and was not asked to remove it."""
    if before.topics is after.topics:
        return None
    for topic_id, topic in before.topics_by_id.items():
        now = after.topics_by_id.get(topic_id)
        if now is None:
            is_ours = any(node_id in record.replicas for record in topic.partitions)
            if is_ours and topic_id not in after.deleted:
                return f"topic {topic.name} is gone without having been deleted"
            continue
        if now is topic:
            continue
        if len(now.partitions) < len(topic.partitions):
            return f"topic {topic.name} has lost partitions"
        for index, old in enumerate(topic.partitions):
            new = now.partitions[index]
            if (new.leader_epoch, new.partition_epoch) < (old.leader_epoch, old.partition_epoch):
                return f"{topic.name}-{index} is back at leader epoch {new.leader_epoch}"
    return None


def explain_refusal(where: str, found: list[str], strays: list[str]) -> str:
    """Returns the reason why the node does not start with this store, and the next steps."""
    named = [*found[:FINDINGS_MAX], *([f"{len(found) - FINDINGS_MAX} more"][: len(found) > 5])]
    if strays:
        some = ", ".join(strays[:FINDINGS_MAX]) + (" and others" if len(strays) > 5 else "")
        named.append(f"it does not know {some}, which have logs here")
    return (
        f"{where} is older than what this node has seen of it: {'; '.join(named)}. It was probably "
        "restored from a backup, or is another store. Records would be hidden or taken for "
        "duplicates, so this node does not serve; nothing was changed. Restore newer metadata, or "
        "stop all nodes and run `penstock cluster recover-metadata` for each of them: see "
        "docs/how-to/restore-metadata.md"
    )


log = logging.getLogger("penstock.metadata")

FILE = "known-metadata"
PAUSE_SECONDS = 1.0


Remember = Callable[[Image], Awaitable[None]]
"""Returns once the topics of an image are persisted here."""


async def remember_nothing(image: Image) -> None:
    pass


class StoreWentBack(Exception):
    """The store shows an earlier state; the message says which."""


def read(disk: Disk, data_dir: str) -> KnownMetadata | None:
    """Reads the previous process's metadata; None if the file is missing or damaged."""
    body = files.read_checked(disk, files.join(data_dir, FILE))
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=KnownMetadata)
    except msgspec.MsgspecError:
        return None


def write(disk: Disk, data_dir: str, known: KnownMetadata, number: int = 0) -> None:
    """`number` counts the replacements of this file by one node."""
    path = files.join(data_dir, FILE)
    files.write_durably(disk, path, msgspec.json.encode(known), files.temporary(number))


class KnownMetadataFile:
    """Metadata that this node has seen, in this process and before."""

    def __init__(
        self,
        disk: Disk | None,
        workers: Workers,
        data_dir: str,
        node_id: int,
        next_producer_id: int = 0,
    ) -> None:
        """Without a disk nothing is persisted. `next_producer_id`: of an earlier process."""
        self._disk = disk
        self._node_id = node_id
        self._workers = workers
        self._data_dir = data_dir
        self._image: Image = EMPTY
        """Newest image."""
        self._kept: Image = EMPTY
        """Image in the file."""
        self._next_producer_id = next_producer_id
        self._kept_producer_id = 0
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._gone_back: str | None = None
        self._number = 0

    def follow(self, before: Image, after: Image) -> None:
        """Schedules a write if needed; called at every change of the image."""
        self._gone_back = self._gone_back or has_gone_back(before, after, self._node_id)
        if self._gone_back is not None:
            self._wake.set()
            return
        self._image = after
        if has_changed(before, after):
            self._wake.set()

    async def topics(self, image: Image) -> None:
        """Returns once the topics of this image are on disk. Raises OSError."""
        if self._image.revision < image.revision:
            self._image = image
        if self._kept.revision < image.revision and has_changed(self._kept, image):
            await self._write(lambda: self._kept.revision >= image.revision)

    async def producer_ids(self, next_id: int) -> None:
        """Returns once the file says that ids below `next_id` may be in use."""
        self._next_producer_id = max(self._next_producer_id, next_id)
        try:
            await self._write(lambda: self._kept_producer_id >= next_id)
        except OSError as error:
            raise Refused(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{FILE} cannot be written: {error}"
            ) from error

    async def run(self) -> None:
        """Keeps the file up to date until cancelled; then writes once more."""
        try:
            await self._write_changes()
        except asyncio.CancelledError:
            await self._flush()
            raise

    async def _write_changes(self) -> None:
        while True:
            await self._wake.wait()
            if self._gone_back is not None:
                raise StoreWentBack(self._gone_back)
            await asyncio.sleep(PAUSE_SECONDS)
            self._wake.clear()
            if not has_changed(self._kept, self._image):
                continue
            try:
                await self._write(lambda: not has_changed(self._kept, self._image))
            except (OSError, Refused) as error:
                log.warning("%s is written later: %s", FILE, error)
                self._wake.set()

    async def _flush(self) -> None:
        try:
            await self._write(lambda: not has_changed(self._kept, self._image))
        except (OSError, Refused) as error:
            log.warning("%s was not written: %s", FILE, error)

    async def _write(self, is_done: Callable[[], bool]) -> None:
        if self._disk is None:
            return
        async with self._writing:
            if is_done():
                return
            image, next_id = self._image, self._next_producer_id
            if image is EMPTY:
                return
            self._number += 1
            await self._workers.run(_put, self._disk, self._data_dir, image, next_id, self._number)
            self._kept = image
            self._kept_producer_id = max(next_id, image.next_producer_id)


def _put(disk: Disk, data_dir: str, image: Image, next_id: int, number: int) -> None:
    write(disk, data_dir, known_of(image, next_id), number)
