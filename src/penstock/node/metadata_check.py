"""Check that this node may serve with the metadata store, and its memory of that store.

At start the store is compared with what was seen of it before (`cluster.metadata.known_metadata`),
before anything is written to it or to the directory: a store that is older, or that is in the
middle of a recovery, is refused. A store without any topic is refused, too, where there are logs:
it was lost. Invariant: after `remember` has returned, nothing was changed yet, and the file is
followed from there on (`cluster.metadata.known_metadata`).
"""

import logging
from collections.abc import Iterator

from penstock.base.ids import TopicId, parse_topic_id
from penstock.base.ports import Disk
from penstock.cluster.metadata import known_metadata
from penstock.cluster.metadata.image import EMPTY, Image
from penstock.cluster.metadata.known_metadata import (
    Epochs,
    KnownMetadata,
    KnownMetadataFile,
    explain_refusal,
    findings,
)
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.storage.log_directories import directory_of
from penstock.log import leader_epochs as epoch_file
from penstock.node.config import NodeConfig
from penstock.node.ports import Ports

log = logging.getLogger("penstock.metadata")

TOPIC_ID_CHARACTERS = 22


class StoreIsOlder(Exception):
    """This node has seen newer metadata than the store has; the message says what to do."""


async def remember(
    ports: Ports,
    config: NodeConfig,
    watcher: MetadataWatcher,
    image: Image,
    *,
    lacks_lives: bool = False,
) -> KnownMetadataFile:
    """Returns this node's memory of the store, to be kept from here on; raises StoreIsOlder.

    `lacks_lives`: the store does not know the last life of this node (`process_lives`). A crash may
    be the cause, but together with logs of unknown topics it proves that the store is older.
    """
    if not ports.keeps_metadata:
        return KnownMetadataFile(None, ports.workers, config.data_dir, config.node_id)
    known = await ports.workers.run(known_metadata.read, ports.disk, config.data_dir)
    if image.recovering:
        nodes = map(str, sorted(image.recovering))
        raise StoreIsOlder(
            f"the metadata is being recovered, and only node {', '.join(nodes)} has reported so "
            "far: run `penstock cluster recover-metadata --yes` for every other node, and with "
            "--without for those that are lost: see docs/how-to/restore-metadata.md"
        )
    older, unknown = await ports.workers.run(
        compare, ports.disk, f"{config.data_dir}/logs", known, image, config.node_id
    )
    is_empty = not image.topics and not image.deleted
    if older or (unknown and (is_empty or lacks_lives)):
        raise StoreIsOlder(explain_refusal(where(config), older, unknown))
    next_id = known.next_producer_id if known is not None else 0
    found = KnownMetadataFile(ports.disk, ports.workers, config.data_dir, config.node_id, next_id)
    found.follow(EMPTY, image)
    watcher.on_change(found.follow)
    return found


def where(config: NodeConfig) -> str:
    """Returns a description of the store for messages."""
    if config.etcd is None:
        return f"{config.data_dir}/metadata.db"
    return f"the metadata in etcd at {', '.join(config.etcd.endpoints)} under {config.etcd.prefix}"


def compare(
    disk: Disk, root: str, known: KnownMetadata | None, image: Image, node_id: int
) -> tuple[list[str], list[str]]:
    """Returns the parts of the store that are older than this node's memory of it, and topics with
    logs here that the store does not know. Blocks."""
    found = findings(known or KnownMetadata(), image, _epochs(disk, root, image, node_id))
    return found, [name for name, _ in strays(disk, root, image)]


def _epochs(disk: Disk, root: str, image: Image, node_id: int) -> Epochs:
    found: dict[tuple[TopicId, int], int] = {}
    for topic in image.topics.values():
        for index, record in enumerate(topic.partitions):
            if node_id in record.replicas:
                path = f"{root}/{directory_of(topic.name, topic.id)}/{index}"
                epochs = epoch_file.read(disk, path)
                if epochs is not None:
                    found[topic.id, index] = epochs.latest
    return found


def strays(disk: Disk, root: str, image: Image) -> list[tuple[str, TopicId]]:
    """Returns names and ids of topics with logs here that the store neither has nor has deleted."""
    return [
        (name, topic_id)
        for name, topic_id, _ in directories(disk, root)
        if topic_id not in image.topics_by_id and topic_id not in image.deleted
    ]


def directories(disk: Disk, root: str) -> Iterator[tuple[str, TopicId, str]]:
    """Yields topics with logs here: the name as far as the directory shows it, id, path."""
    for entry in disk.listdir(root):
        name, _, text = entry.rpartition(".")
        if name and len(text) == TOPIC_ID_CHARACTERS:
            try:
                yield name, parse_topic_id(text), f"{root}/{entry}"
            except ValueError:
                continue
