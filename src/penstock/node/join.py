"""Joining the cluster at start: directory, metadata, cluster id and node id.

Owns: the order of these checks, and the message of each failure. Invariants: nothing is written to
the data directory before every check that could show that the directory, the etcd or the node id is
the wrong one. With embedded metadata the directory is claimed first, because a crash in between
must not leave metadata without an owner.
"""

import asyncio
import base64
from collections.abc import Callable

from penstock.base.errors import Corrupt
from penstock.base.ports import Expect, Put, Random, Store, UnknownResult
from penstock.base.retry import Retry
from penstock.cluster.metadata import store_keys
from penstock.node import data_directory
from penstock.node.config import NodeConfig
from penstock.node.ports import Ports

PATIENCE_SECONDS = 30.0
"""Maximum wait of a start for metadata that does not answer."""
SILENT_SECONDS = 2.0
"""Wait before the first log message about it: etcd may be starting, too."""
PAUSE_SECONDS = (0.1, 1.0)
Announce = Callable[[str], None]


class CannotJoin(Exception):
    """The node cannot join the cluster; the message says why. Nothing was changed."""


def new_id(random: Random) -> str:
    return base64.urlsafe_b64encode(random.random_bytes(16)).rstrip(b"=").decode()


def look(ports: Ports, config: NodeConfig) -> data_directory.Meta | None:
    """Returns the owner of the data directory; refuses another node's.

    Claims it for embedded metadata.
    """
    if ports.is_store_shared:
        return data_directory.read(ports.disk, config.data_dir, config.node_id, is_shared=True)
    return _claim(ports, config, new_id(ports.random))


def _claim(ports: Ports, config: NodeConfig, cluster_id: str) -> data_directory.Meta:
    owner = data_directory.Meta(
        data_directory.FORMAT,
        cluster_id,
        config.node_id,
        new_id(ports.random),
        is_shared=ports.is_store_shared,
    )
    return data_directory.claim(ports.disk, config.data_dir, owner)


async def open_store(ports: Ports, config: NodeConfig, say: Announce) -> Store:
    """Opens the metadata store; waits a bounded time for it to answer."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    has_said = False
    retry = Retry(ports.random, *PAUSE_SECONDS)
    while True:
        try:
            return await ports.open_store(f"{config.data_dir}/metadata.db")
        except (ConnectionError, TimeoutError) as error:
            waited_s, pause_s = loop.time() - began_s, retry.next_s()
            if waited_s + pause_s >= PATIENCE_SECONDS:
                raise CannotJoin(
                    f"etcd did not answer within {PATIENCE_SECONDS:g} s: {error}; is it running, "
                    "and are the endpoints right?"
                ) from error
            if not has_said and waited_s >= SILENT_SECONDS:
                say(f"waiting up to {PATIENCE_SECONDS:g} s for etcd: {error}")
                has_said = True
        await asyncio.sleep(pause_s)


async def agree(
    ports: Ports, config: NodeConfig, store: Store, meta: data_directory.Meta | None
) -> data_directory.Meta:
    """Checks that directory and metadata belong to one cluster; a new directory joins it."""
    deadline_s = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    retry = Retry(store.random, *PAUSE_SECONDS)
    while True:
        try:
            stored = await _cluster_id(ports, config, store, meta)
            break
        except (UnknownResult, ConnectionError, TimeoutError) as error:
            if asyncio.get_running_loop().time() >= deadline_s:
                raise CannotJoin(f"the metadata store does not answer: {error}") from error
            await retry.pause()
        except Corrupt as error:
            raise CannotJoin(f"the metadata cannot be used: {error}") from error
    if meta is None:
        return _claim(ports, config, stored)
    if stored != meta.cluster_id:
        raise CannotJoin(
            f"{config.data_dir} holds logs of cluster {meta.cluster_id}, but "
            f"{_metadata(config)} is of cluster {stored}; use the directory "
            "and the metadata of one cluster"
        )
    return meta if meta.directory_id else _claim(ports, config, stored)


async def _cluster_id(
    ports: Ports, config: NodeConfig, store: Store, meta: data_directory.Meta | None
) -> str:
    """Returns the cluster id of the store; the first node of a cluster stores it."""
    entry = await store.get(store_keys.CLUSTER_ID)
    if entry is None:
        if meta is not None and ports.is_store_shared:
            # A directory joins after its cluster's id was stored, so the store once had that id.
            raise CannotJoin(
                f"{config.data_dir} holds logs of cluster {meta.cluster_id}, but "
                f"{_metadata(config)} knows of no cluster: are the etcd endpoints and the prefix "
                "right, and does etcd have its data?"
            )
        cluster_id = meta.cluster_id if meta is not None else new_id(ports.random)
        record = store_keys.encode(store_keys.ClusterRecord(cluster_id))
        await store.commit([Expect(store_keys.CLUSTER_ID, 0)], [Put(store_keys.CLUSTER_ID, record)])
        entry = await store.get(store_keys.CLUSTER_ID)
        assert entry is not None
    return store_keys.decode(store_keys.ClusterRecord, entry.value).cluster_id


def _metadata(config: NodeConfig) -> str:
    if config.etcd is None:
        return "its metadata"
    return f"etcd at {', '.join(config.etcd.endpoints)} under {config.etcd.prefix}"
