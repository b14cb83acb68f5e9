"""Finding coordinators, also those on nodes that were away when we last asked who is there."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from penstock.client.cluster import Cluster
from penstock.client.coordinators import TRANSACTION, find_coordinator
from penstock.wire.messages.groups import Coordinator, FindCoordinatorResponse


class Knowing:
    """A cluster of which a client knows some brokers; `refresh` tells it of all."""

    def __init__(self, known: set[int]) -> None:
        self.metadata = SimpleNamespace(brokers=dict.fromkeys(known))
        self.refreshes = 0

    async def call(self, request: object, answer: type[Any]) -> FindCoordinatorResponse:
        row = Coordinator(key="tx", node_id=3, host="h", port=1, error_code=0, error_message=None)
        return FindCoordinatorResponse(coordinators=[row])

    async def refresh(self, topics: object) -> None:
        self.refreshes += 1
        self.metadata.brokers[3] = None


def test_a_node_that_was_away_is_asked_for_again() -> None:
    cluster = Knowing({1, 2})
    found = asyncio.run(find_coordinator(cast("Cluster", cluster), TRANSACTION, "tx"))
    assert (found, cluster.refreshes) == (3, 1)


def test_a_node_that_is_known_costs_no_question() -> None:
    cluster = Knowing({1, 2, 3})
    found = asyncio.run(find_coordinator(cast("Cluster", cluster), TRANSACTION, "tx"))
    assert (found, cluster.refreshes) == (3, 0)
