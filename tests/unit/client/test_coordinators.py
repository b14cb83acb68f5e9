"""Finding coordinators, also on nodes that were away when we last asked; remembering them."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.coordinators import TRANSACTION, at_coordinator, find_coordinator
from penstock.wire.messages.classic_groups import Coordinator, FindCoordinatorResponse


class Knowing:
    """A cluster of which a client knows some brokers; `refresh` returns all of them."""

    def __init__(self, known: set[int]) -> None:
        self.metadata = SimpleNamespace(brokers=dict.fromkeys(known))
        self.refreshes = 0

    async def call(self, request: object, answer: type[Any]) -> FindCoordinatorResponse:
        row = Coordinator(key="tx", node_id=3, host="h", port=1, error_code=0, error_message=None)
        return FindCoordinatorResponse(coordinators=[row])

    async def refresh(self, topics: object) -> None:
        self.refreshes += 1
        self.metadata.brokers[3] = None


def test_unknown_coordinator_node_refreshes_metadata() -> None:
    cluster = Knowing({1, 2})
    found = asyncio.run(find_coordinator(cast("Cluster", cluster), TRANSACTION, "tx"))
    assert (found, cluster.refreshes) == (3, 1)


def test_known_coordinator_node_needs_no_refresh() -> None:
    cluster = Knowing({1, 2, 3})
    found = asyncio.run(find_coordinator(cast("Cluster", cluster), TRANSACTION, "tx"))
    assert (found, cluster.refreshes) == (3, 0)


class Asked:
    """A cluster that counts who is looked up; `retrying` tries twice."""

    def __init__(self, coordinators: dict[tuple[int, str], int] | None) -> None:
        self.coordinators = coordinators
        self.metadata = SimpleNamespace(brokers={3: None})
        self.lookups = 0

    async def call(self, request: Any, answer: type[Any]) -> FindCoordinatorResponse:
        self.lookups += 1
        row = Coordinator(
            key=request.key, node_id=3, host="h", port=1, error_code=0, error_message=None
        )
        return FindCoordinatorResponse(coordinators=[row])

    async def retrying(self, attempt: Any, *, is_repeatable: bool) -> Any:
        try:
            return await attempt()
        except Refused:
            return await attempt()


def ask_often(cluster: Asked, keys: list[str], answers: list[int | Refused]) -> list[int]:
    left = iter(answers)

    async def ask(node_id: int) -> int:
        assert node_id == 3
        answer = next(left)
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def run() -> list[int]:
        known = cast("Cluster", cluster)
        return [await at_coordinator(known, TRANSACTION, key, ask) for key in keys]

    return asyncio.run(run())


def test_coordinator_is_looked_up_for_every_call_without_a_cache() -> None:
    cluster = Asked(None)
    assert ask_often(cluster, ["tx", "tx"], [1, 2]) == [1, 2]
    assert cluster.lookups == 2


def test_coordinators_are_cached() -> None:
    cluster = Asked({})
    assert ask_often(cluster, ["tx", "tx", "other"], [1, 2, 3]) == [1, 2, 3]
    assert cluster.lookups == 2, "one for each id"


def test_cached_coordinator_is_looked_up_again_after_a_failure() -> None:
    cluster = Asked({})
    moved = Refused(ErrorCode.NOT_COORDINATOR, "moved")
    assert ask_often(cluster, ["tx", "tx"], [1, moved, 2]) == [1, 2]
    assert cluster.lookups == 2


def test_coordinator_cache_is_limited() -> None:
    cluster = Asked({})
    keys = [str(number) for number in range(300)]
    ask_often(cluster, keys, list(range(300)))
    assert cluster.coordinators is not None
    assert len(cluster.coordinators) == 256
    assert (TRANSACTION, "299") in cluster.coordinators
    assert (TRANSACTION, "0") not in cluster.coordinators
