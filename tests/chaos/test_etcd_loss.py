"""etcd loses members, or is unavailable: acknowledged records stay, and writes resume.

With one of three members gone nodes find the others, and clients notice nothing. Without any, nodes
cannot renew their leases: they refuse writes when those end, whatever the clients ask for, and
continue by themselves when etcd is back.

`PENSTOCK_FAILOVERS` sets the number of rounds (a twentieth of it, at least once).
"""

import os
import time
from collections.abc import Iterator

import pytest

from tests.brokers import QUICK
from tests.chaos.cluster_view import wait_whole
from tests.chaos.load import Load
from tests.chaos.writers import create_topic
from tests.clusters import Nodes
from tests.etcd import EtcdCluster

ROUNDS = max(1, int(os.environ.get("PENSTOCK_FAILOVERS", "2")) // 20)
IS_LONG = ROUNDS > 1
AWAY_S = 20.0 if IS_LONG else 8.0
"""Longer than a session: by then no node may be sure of its place."""
RATE = 200

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300 + 120 * ROUNDS)]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> EtcdCluster:
    return EtcdCluster(tmp_path_factory.mktemp("etcds"))


@pytest.fixture(scope="module")
def nodes(etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("etcd-loss") / "cluster", sets=QUICK, etcd=etcd)
    try:
        yield nodes
    finally:
        nodes.stop()


def test_writes_continue_without_an_etcd_member_and_resume_after_an_outage(
    nodes: Nodes, etcd: EtcdCluster, topic: str
) -> None:
    create_topic(nodes.bootstrap, topic, 1, factor=3, min_insync_replicas="2")
    with Load(nodes.bootstrap, topic, rate=RATE, explain=nodes.all_logs) as load:
        for _ in range(ROUNDS):
            wait_whole(nodes, topic)
            load.wait_progress()
            moment = time.monotonic()
            member = etcd.leader()
            member.kill()
            time.sleep(AWAY_S / 4)
            load.wait_progress()
            one_s = load.gap_since(moment)
            member.start()

            wait_whole(nodes, topic)
            moment = time.monotonic()
            for member in etcd.members:
                member.kill()
            time.sleep(AWAY_S)
            before = load.acknowledged
            time.sleep(0.5)
            assert load.acknowledged == before, "writes are taken without a lease"
            for member in etcd.members:
                member.spawn()
            back = time.monotonic()
            load.wait_progress()
            print(
                f"etcd's leader killed: gap {one_s:.2f} s; etcd away for {AWAY_S:.0f} s: gap "
                f"{load.gap_since(moment):.2f} s, back {time.monotonic() - back:.2f} s after it"
            )
        wait_whole(nodes, topic)
        found = load.judge()
        assert found == [], "\n".join(map(str, found))
        assert load.errors == []
    texts = {n: node.log_path.read_text(errors="replace") for n, node in nodes.nodes.items()}
    assert [n for n, text in texts.items() if "Traceback" in text] == []
