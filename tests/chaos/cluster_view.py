"""State of a cluster while it is disturbed: leaders, replicas, the controller.

Every node is asked separately: an isolated one reports its last known state.
"""

import time
from dataclasses import dataclass

from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.chaos import raw
from tests.clusters import Nodes

SETTLE_S = 90.0
ASK_S = 5.0
VERSION = 12


@dataclass(frozen=True)
class View:
    """One topic of a cluster, as one node sees it."""

    controller: int
    brokers: tuple[int, ...]
    leaders: tuple[int, ...]
    """By partition; -1: none."""
    isrs: tuple[tuple[int, ...], ...]

    @property
    def leader(self) -> int:
        return self.leaders[0]

    def is_whole(self, count: int) -> bool:
        led = all(leader in self.brokers for leader in self.leaders)
        return led and len(self.brokers) == count and all(len(isr) == count for isr in self.isrs)


def ask(address: str, topic: str) -> View | None:
    """One node's view; None: it does not answer, or knows of no such topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    try:
        with raw.connect(address, ASK_S) as connection:
            raw.send(connection, request, VERSION)
            found: MetadataResponse = raw.receive(connection, MetadataResponse, VERSION)
    except (ConnectionError, TimeoutError):
        return None
    rows = sorted(found.topics[0].partitions, key=lambda row: row.partition_index)
    return View(
        found.controller_id,
        tuple(sorted(broker.node_id for broker in found.brokers)),
        tuple(row.leader_id for row in rows),
        tuple(tuple(sorted(row.isr_nodes)) for row in rows),
    )


def wait_whole(cluster: Nodes, topic: str) -> View:
    """Until all nodes agree that every partition has a leader and all its replicas in sync."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        views = [ask(node.address, topic) for node in cluster.nodes.values()]
        first = views[0]
        if first is not None and first.is_whole(len(views)) and views == [first] * len(views):
            return first
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not whole: {views}\n{cluster.all_logs()}")
        time.sleep(0.1)
