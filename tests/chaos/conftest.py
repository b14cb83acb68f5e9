"""The cluster that chaos tests share. Each finds it whole, whatever the one before left."""

import signal
from collections.abc import Iterator

import pytest

from tests.clusters import Nodes
from tests.conftest import QUICK_GROUPS

QUICK = {
    "group.initial.rebalance.delay.ms": QUICK_GROUPS["group.initial.rebalance.delay.ms"],
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
}
"""A start need not look through dozens of empty partitions; what is tested is in the few."""


@pytest.fixture(scope="session")
def _nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("nodes") / "cluster", sets=QUICK)
    try:
        yield nodes
    finally:
        nodes.stop()


@pytest.fixture
def cluster(_nodes: Nodes) -> Nodes:
    """Three nodes and one etcd; a test may kill and pause what it likes."""
    if not all(member.running for member in _nodes.etcd.members):
        _nodes.etcd.members[0].start()
    for node in _nodes.nodes.values():
        if node.running:
            node.send(signal.SIGCONT)
        else:
            node.start()
    return _nodes
