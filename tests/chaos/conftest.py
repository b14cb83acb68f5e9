"""The cluster that chaos tests share. Each finds it whole, whatever the one before left."""

import signal
from collections.abc import Iterator

import pytest

from tests.brokers import QUICK
from tests.clusters import Nodes


@pytest.fixture(scope="package")
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
