"""Partitions of a real network: an unreachable leader is replaced, and nothing is lost.

Leases do not decide where nodes reach etcd, and followers may lag for longer than a test lasts:
progress there depends on the nodes' reports of which peers they reach.

Every node, and etcd, is in a network namespace of its own (`network`); clients are outside and
reach all of them, unless a test says otherwise. Making namespaces needs root; without it the tests
say so and skip.

`PENSTOCK_FAILOVERS` sets the number of partitions (a twentieth of it, at least once).
"""

import os
import time
from collections.abc import Callable, Iterator

import pytest

from tests.brokers import QUICK
from tests.chaos.cluster_view import wait_whole
from tests.chaos.gaps import Gaps, show
from tests.chaos.load import Load
from tests.chaos.network import HERE, Network, require_network
from tests.chaos.writers import create_topic
from tests.clusters import Nodes
from tests.etcd import EtcdProcess

ROUNDS = max(1, int(os.environ.get("PENSTOCK_FAILOVERS", "2")) // 20)
IS_LONG = ROUNDS > 1
GAP_S_MAX = 10.0
HELD_S = 15.0 if IS_LONG else 7.0
"""Minimum duration of a partition: longer than the session of the isolated node."""
ETCD = "etcd"
RATE = 200
HUNG = {"socket.timeout.ms": 1_000}
"""As in `test_failover`: for the partitions that clients notice only by their own timeout."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300 + 120 * ROUNDS)]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = require_network(["1", "2", "3", ETCD])
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def nodes(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    data_dir = tmp_path_factory.mktemp("network")
    host = network.addresses[ETCD]
    etcd = EtcdProcess(data_dir / "etcd", host=host, prefix=network.prefix(ETCD))
    nodes = Nodes(
        data_dir / "cluster",
        sets={**QUICK, "replica.lag.time.max.ms": 600_000},
        etcd=etcd,
        own={n: {"host": network.addresses[str(n)], "insecure": True} for n in (1, 2, 3)},
        prefixes={n: network.prefix(str(n)) for n in (1, 2, 3)},
    )
    try:
        yield nodes
    finally:
        network.heal()
        nodes.stop()


Cut = Callable[[Network, str, list[str]], None]
"""Given the leader and the other nodes."""


def both_ways(network: Network, leader: str, others: list[str]) -> None:
    """Clients reach it still: it must refuse what they send, or they would wait for it."""
    network.isolate(leader, [*others, ETCD])


def not_heard(network: Network, leader: str, others: list[str]) -> None:
    for target in (*others, ETCD):
        network.cut(leader, target)


def hears_nothing(network: Network, leader: str, others: list[str]) -> None:
    for source in (*others, ETCD):
        network.cut(source, leader)


def from_clients_too(network: Network, leader: str, others: list[str]) -> None:
    network.isolate(leader, [*others, ETCD, HERE])


def from_etcd_alone(network: Network, leader: str, others: list[str]) -> None:
    network.isolate(leader, [ETCD])


def from_followers_alone(network: Network, leader: str, others: list[str]) -> None:
    network.isolate(leader, others)


def not_heard_by_followers(network: Network, leader: str, others: list[str]) -> None:
    for target in others:
        network.cut(leader, target)


def hears_no_followers(network: Network, leader: str, others: list[str]) -> None:
    for source in others:
        network.cut(source, leader)


def hears_not_one_follower(network: Network, leader: str, others: list[str]) -> None:
    """The leader stays, and does without that one."""
    network.cut(others[0], leader)


CUTS: tuple[Cut, ...] = (both_ways, from_followers_alone, hears_not_one_follower)
if IS_LONG:
    CUTS = (*CUTS, hears_nothing, not_heard, from_clients_too, from_etcd_alone)
    CUTS = (*CUTS, not_heard_by_followers, hears_no_followers)


TABLE: list[Gaps] = []


@pytest.fixture(scope="module", autouse=True)
def _table() -> Iterator[None]:
    yield
    show(TABLE)


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.__name__)
def test_isolated_leader_is_replaced_without_loss(
    nodes: Nodes, network: Network, topic: str, cut: Cut
) -> None:
    create_topic(nodes.bootstrap, topic, 1, factor=3, min_insync_replicas="2")
    row = Gaps(f"leader cut off, {cut.__name__.replace('_', ' ')}", GAP_S_MAX)
    TABLE.append(row)
    with Load(
        nodes.bootstrap, topic, rate=RATE, settings=HUNG, readers=False, explain=nodes.all_logs
    ) as load:
        for _ in range(ROUNDS):
            leader = wait_whole(nodes, topic).leader
            load.wait_progress()
            moment = time.monotonic()
            cut(network, str(leader), [str(n) for n in nodes.nodes if n != leader])
            try:
                load.wait_progress()
                time.sleep(max(0.0, moment + HELD_S - time.monotonic()))
                load.wait_progress()
                row.seconds.append(load.gap_since(moment))
            finally:
                network.heal()
        wait_whole(nodes, topic)
        found = load.judge()
        assert found == [], "\n".join(map(str, found))
        assert load.errors == []
    if IS_LONG:
        assert row.p99_s <= row.promised_s, row
