"""Opening the logs, after replicas that may have lost records have left the ISR.

Four kinds of loss are detected before the node registers, while no replica of it can be in sync:

- the tail after a crash: there is no clean-shutdown marker (`withdraw_unclean`);
- a tail that was truncated although it may have been committed: the replica leaves ISR and ELR if
  another member is left (`log.doubtful_tail`);
- the whole data directory: it is new, or was restored from an older copy (`process_lives`). Then
  neither its clean stop nor its files show what this node once acknowledged (ADR 0032);
- single logs, or the folder of all of them: records that this node is known to have held are
  missing (`log.recovery`, `cluster.replication.high_watermark_checkpoint`). Those replicas are
  lost: they leave ISR and ELR, and are copied anew (`returns.withdraw_lost`). One without other
  replicas stays offline.
"""

import logging
from typing import TYPE_CHECKING

from penstock.base.ids import NodeId
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.replication.unclean_restart import (
    withdraw_doubtful,
    withdraw_lost,
    withdraw_unclean,
)
from penstock.log import doubtful_tail
from penstock.log.flusher import Flusher
from penstock.node import data_directory, metadata_check, process_lives

if TYPE_CHECKING:
    from penstock.node.node import Node

log = logging.getLogger("penstock.node")


async def open_logs(node: "Node", meta: data_directory.Meta, is_new: bool) -> None:
    """Sets the node's follower, flusher and partitions.

    `is_new`: its directory was just created.
    """
    config, data_dir = node.config, node.config.data_dir
    node.watcher = MetadataWatcher(node.store)
    node.membership.reached = node.watcher.reached
    image = await node.watcher.start()
    node._follow_configs(image)
    last = await process_lives.last(node.store, config.node_id)
    here = data_directory.read_life(node.disk, data_dir)
    lacks_lives = process_lives.is_unknown(here, meta.directory_id, last)
    node.memory = await metadata_check.remember(
        node.ports, config, node.watcher, image, lacks_lives=lacks_lives
    )
    are_logs_missing = not is_new and not node.disk.exists(f"{data_dir}/logs")
    is_old = not is_new and process_lives.is_older(here, meta.directory_id, last)
    clean = data_directory.take_clean_states(node.disk, data_dir, here)
    if is_old:
        process_lives.report(data_dir, here, last)
        clean = None
    if clean is None:
        await node.membership.vacate(meta.directory_id)
        await withdraw_unclean(
            node.store, node.configs, config.node_id, is_empty=is_new, is_old=is_old
        )
        image = await node.watcher.start()
        if not is_new and not are_logs_missing:
            # The check may take long, and until it ends there is no other sign of life.
            log.warning("the last stop was not clean: checking logs before serving")
    node.flusher = Flusher(node.disk, node.sync_workers, node._disk_failed, node.metrics.syncs)
    node.partitions = Partitions(
        NodeId(config.node_id),
        node.disk,
        node.workers,
        node.clock,
        node.store,
        node.flusher,
        node.configs,
        f"{data_dir}/logs",
        validity=node.membership,
        keyring=node.unlocked.keyring,
        remember=node.memory.topics,
    )
    await node.partitions.start(
        image, clean, are_logs_missing=are_logs_missing, has_run_before=here > 0
    )
    lost = [key for key, one in node.partitions.items() if one.log.is_lost]
    if lost:
        await node.membership.vacate(meta.directory_id)
        await withdraw_lost(node.store, node.configs, config.node_id, lost)
    doubtful = {key: one.log.path for key, one in node.partitions.items() if one.log.is_doubtful}
    if doubtful:
        await node.membership.vacate(meta.directory_id)
        await withdraw_doubtful(node.store, node.configs, config.node_id, doubtful)
        await node.workers.run(doubtful_tail.settle, node.disk, doubtful.values())
    # Not earlier: after a crash up to here the same losses must be detected again.
    life = process_lives.next_life(here, meta.directory_id, last)
    data_directory.write_life(node.disk, data_dir, life.number)
    node.membership.life = life
