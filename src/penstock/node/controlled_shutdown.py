"""Controlled shutdown: serving on until others lead what they can, for a bounded time."""

import asyncio
import logging

from penstock.cluster.metadata.membership import ClusterMembership, leads_what_others_could
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher

log = logging.getLogger("penstock.node")

HAND_OVER_SECONDS = 30.0
"""How long a node that is asked to stop waits for others to lead in its place."""
LOOK_SECONDS = 0.02


async def hand_over(
    membership: ClusterMembership,
    watcher: MetadataWatcher,
    is_hurried: asyncio.Event,
    failed: "asyncio.Future[None]",
) -> None:
    """Returns when others lead, or cannot, or somebody is in a hurry, or the node has failed."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + HAND_OVER_SECONDS
    is_possible = await membership.drain()
    while leads_what_others_could(watcher.image, membership.node_id):
        is_possible = is_possible and not membership.is_fenced
        if not is_possible or is_hurried.is_set() or failed.done():
            break
        if loop.time() >= deadline_s:
            log.warning("stopping although this node still leads what others could")
            break
        await asyncio.sleep(LOOK_SECONDS)
