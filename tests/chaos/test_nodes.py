"""Everything that can happen to nodes, under clients of two families: the history has no anomaly.

Producers and consumer groups of librdkafka and aiokafka use one topic while nodes are killed,
paused and restarted, as a seed says; in the end everything they saw is held against what is there
(`history`). Consumers commit all the time, so groups, their offsets and their members fail over,
too.

`PENSTOCK_FAILOVERS` says how often nodes are disturbed (default 2, `make chaos` asks for 100; every
kind comes in turn), `PENSTOCK_KILLS_SEED` replays the choices of an earlier run.
"""

import os
import random
import time

import pytest

from tests.chaos import nemeses
from tests.chaos.cluster_view import wait_whole
from tests.chaos.load import Load
from tests.chaos.nemeses import Arena, Nemesis
from tests.chaos.writers import create_topic
from tests.clusters import Nodes

ROUNDS = int(os.environ.get("PENSTOCK_FAILOVERS", "2"))
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", time.time_ns() % 1_000_000))
PARTITIONS = 3
RATE = 100
HUNG = {"socket.timeout.ms": 3_000}
"""As in `test_failover`: a client notices a node that hangs by its own timeout."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300 + 60 * ROUNDS)]


def disturb(cluster: Nodes, topic: str, plan: list[Nemesis], default: bool = False) -> None:
    """Carries out the plan under load; `default`: clients have no timeouts of their own."""
    print(f"PENSTOCK_FAILOVERS={ROUNDS} PENSTOCK_KILLS_SEED={SEED}")
    create_topic(cluster.bootstrap, topic, PARTITIONS, factor=3, min_insync_replicas="2")
    with Load(
        cluster.bootstrap,
        topic,
        PARTITIONS,
        RATE,
        settings=None if default else HUNG,
        explain=cluster.all_logs,
    ) as load:
        arena = Arena(cluster, topic, load, random.Random(SEED))
        for nemesis in plan:
            arena.whole()
            moment = time.monotonic()
            nemesis(arena)
            gap = max(load.gap_since(moment, partition) for partition in range(PARTITIONS))
            print(f"{nemesis.__name__}: {time.monotonic() - moment:.1f} s, gap {gap:.2f} s")
        wait_whole(cluster, topic)
        found = load.judge()
        assert found == [], "\n".join(map(str, found))
        assert load.errors == []
    logs = {n: node.log_path.read_text(errors="replace") for n, node in cluster.nodes.items()}
    assert [n for n, text in logs.items() if "Traceback" in text] == []


def test_histories_have_no_anomaly_under_node_faults(cluster: Nodes, topic: str) -> None:
    if len(nemeses.ALL) > ROUNDS:
        plan: list[Nemesis] = [nemeses.kill_coordinator, nemeses.kill_everything]
    else:
        plan = [nemeses.ALL[n % len(nemeses.ALL)] for n in range(ROUNDS // 2)]
        random.Random(SEED).shuffle(plan)
    disturb(cluster, topic, plan)


def test_rolling_restart_is_not_noticed_by_default_clients(cluster: Nodes, topic: str) -> None:
    plan: list[Nemesis] = [nemeses.restart_one_by_one]
    disturb(cluster, topic, plan * max(1, ROUNDS // 20), default=True)
