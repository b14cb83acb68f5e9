"""Controlled shutdown: keeps serving for a bounded time until other nodes lead its partitions."""

import asyncio
import logging

from penstock.cluster.metadata.membership import ClusterMembership, leads_what_others_could
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher

log = logging.getLogger("penstock.node")

HAND_OVER_SECONDS = 30.0
"""Maximum wait of a stopping node for other nodes to take over its partitions."""
LOOK_SECONDS = 0.02


async def hand_over(
    membership: ClusterMembership,
    watcher: MetadataWatcher,
    is_hurried: asyncio.Event,
    failed: "asyncio.Future[None]",
) -> None:
    """Returns once leadership is handed over, the stop is hurried, or the node has failed."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + HAND_OVER_SECONDS
    is_possible = await membership.drain()
    while leads_what_others_could(watcher.image, membership.node_id):
        is_possible = is_possible and not membership.is_fenced
        if not is_possible or is_hurried.is_set() or failed.done():
            break
        if loop.time() >= deadline_s:
            log.warning(
                "stopping while this node still leads partitions that other nodes could lead"
            )
            break
        await asyncio.sleep(LOOK_SECONDS)
