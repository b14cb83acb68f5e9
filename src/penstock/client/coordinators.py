"""Who coordinates a group or a transactional id, and asking there (FindCoordinator, api 10).

The coordinator is looked up for every try: administrators ask seldom, and an answer that has
become wrong costs more than the question. Where the same few are asked again and again, a cluster
may remember them (`Cluster.coordinators`); after any failure the next try looks again.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.client.cluster import Cluster
from penstock.client.errors import check, refusal
from penstock.wire.messages.classic_groups import FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1

_REMEMBERED_MAX = 256

_NOUNS = {GROUP: "group", TRANSACTION: "transactional id"}

T = TypeVar("T")


async def find_coordinator(cluster: Cluster, kind: int, key: str) -> int:
    """The node that coordinates this group or transactional id, one try."""
    request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
    reply = await cluster.call(request, FindCoordinatorResponse)
    about = f"{_NOUNS[kind]} {key!r}"
    check(reply.error_code, reply.error_message, about=about)
    if not reply.coordinators:
        return await _known(cluster, reply.node_id)  # Before v4 the answer is flat.
    for row in reply.coordinators:
        if row.key == key:
            check(row.error_code, row.error_message, about=about)
            return await _known(cluster, row.node_id)
    raise refusal(-1, about=about)


async def _known(cluster: Cluster, node_id: int) -> int:
    """A node that was away when we last asked who is there would stay out of reach."""
    if node_id not in cluster.metadata.brokers:
        await cluster.refresh(())
    return node_id


async def at_coordinator(
    cluster: Cluster,
    kind: int,
    key: str,
    ask: Callable[[int], Awaitable[T]],
    *,
    is_repeatable: bool = True,
) -> T:
    """Calls `ask` with the coordinator's node id, again while the cluster says: not now."""

    known = cluster.coordinators

    async def attempt() -> T:
        if known is None:
            return await ask(await find_coordinator(cluster, kind, key))
        # Out while it is asked: whatever fails, the next try looks it up.
        node_id = known.pop((kind, key), None)
        if node_id is None:
            node_id = await find_coordinator(cluster, kind, key)
        answer = await ask(node_id)
        while len(known) >= _REMEMBERED_MAX:
            del known[next(iter(known))]
        known[kind, key] = node_id
        return answer

    return await cluster.retrying(attempt, is_repeatable=is_repeatable)


async def at_every_broker(cluster: Cluster, ask: Callable[[int], Awaitable[list[T]]]) -> list[T]:
    """What all brokers answer, one after another: each knows only what it coordinates."""
    await cluster.refresh(())
    found: list[T] = []
    for node_id in sorted(cluster.metadata.brokers):

        async def attempt(node_id: int = node_id) -> list[T]:
            return await ask(node_id)

        found += await cluster.retrying(attempt)
    return found
