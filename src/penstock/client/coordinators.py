"""Finds and calls the coordinator of a group or transactional id (FindCoordinator, api 10).

By default the coordinator is looked up for every try: admin requests are rare, and a stale answer
costs more than a lookup. A client that calls the same few coordinators often may cache them
(`Cluster.coordinators`); after any failure the next try looks the coordinator up again.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.client.cluster import Cluster
from penstock.client.errors import check, refusal
from penstock.wire.messages.classic_groups import FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1

_CACHED_MAX = 256

_NOUNS = {GROUP: "group", TRANSACTION: "transactional id"}

T = TypeVar("T")


async def find_coordinator(cluster: Cluster, kind: int, key: str) -> int:
    """Returns the coordinator of this group or transactional id, without retries."""
    request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
    reply = await cluster.call(request, FindCoordinatorResponse)
    about = f"{_NOUNS[kind]} {key!r}"
    check(reply.error_code, reply.error_message, about=about)
    if not reply.coordinators:
        return await _with_known_broker(
            cluster, reply.node_id
        )  # Before v4 the reply has one coordinator.
    for row in reply.coordinators:
        if row.key == key:
            check(row.error_code, row.error_message, about=about)
            return await _with_known_broker(cluster, row.node_id)
    raise refusal(-1, about=about)


async def _with_known_broker(cluster: Cluster, node_id: int) -> int:
    """Returns `node_id`, after refreshing the brokers if it is not among them yet."""
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
    """Calls `ask` with the coordinator's node id, with retries."""

    cached = cluster.coordinators

    async def attempt() -> T:
        if cached is None:
            return await ask(await find_coordinator(cluster, kind, key))
        # Removed during the call: after any failure the next try looks it up.
        node_id = cached.pop((kind, key), None)
        if node_id is None:
            node_id = await find_coordinator(cluster, kind, key)
        answer = await ask(node_id)
        while len(cached) >= _CACHED_MAX:
            del cached[next(iter(cached))]
        cached[kind, key] = node_id
        return answer

    return await cluster.retrying(attempt, is_repeatable=is_repeatable)


async def at_every_broker(cluster: Cluster, ask: Callable[[int], Awaitable[list[T]]]) -> list[T]:
    """Calls every broker in turn and joins the results: each knows only what it coordinates."""
    await cluster.refresh(())
    found: list[T] = []
    for node_id in sorted(cluster.metadata.brokers):

        async def attempt(node_id: int = node_id) -> list[T]:
            return await ask(node_id)

        found += await cluster.retrying(attempt)
    return found
