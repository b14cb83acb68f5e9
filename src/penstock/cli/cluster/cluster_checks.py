"""Cluster checks of `penstock doctor`: nodes, controller, leaders and replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.cluster.machine_checks import Check, CheckVerdict
from penstock.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from penstock.client.metadata import TopicInfo

NAMED_MAX = 5


async def check_cluster(session: CommandSession) -> list[Check]:
    """Checks the cluster. The caller reports a cluster that does not answer."""
    from penstock.client.admin.admin import Admin

    topics = await Admin(session.cluster).list_topics()
    metadata = session.cluster.metadata
    return judge_cluster(topics, sorted(metadata.brokers), metadata.controller_id)


def judge_cluster(
    topics: Sequence[TopicInfo], nodes: Sequence[int], controller: int
) -> list[Check]:
    return [
        _nodes(nodes, controller),
        _leaders(topics),
        _copies(topics, nodes),
        _replication(topics, len(nodes)),
    ]


def unreachable(error: object) -> Check:
    action = "start it with `penstock up`, or pass its brokers with -b"
    return Check("cluster", CheckVerdict.fail, f"does not answer: {error}", action)


def _nodes(nodes: Sequence[int], controller: int) -> Check:
    finding = f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}, controller {controller}"
    if controller not in nodes:
        action = "check etcd: without a controller no leader is replaced"
        return Check("cluster", CheckVerdict.fail, f"{finding}, which is down", action)
    if len(nodes) == 2:
        action = "the loss of one of two nodes stops acks=all: add a third"
        return Check("cluster", CheckVerdict.warn, finding, action)
    return Check("cluster", CheckVerdict.ok, finding)


def _leaders(topics: Sequence[TopicInfo]) -> Check:
    lost = [f"{t.name}-{p.index}" for t in topics for p in t.partitions.values() if p.leader_id < 0]
    if lost:
        action = "start the nodes that hold their replicas; see `penstock cluster describe`"
        return Check("leaders", CheckVerdict.fail, f"{_some(lost)} have no leader", action)
    return Check("leaders", CheckVerdict.ok, "every partition has a leader")


def _copies(topics: Sequence[TopicInfo], nodes: Sequence[int]) -> Check:
    lacking = [
        f"{t.name}-{p.index}"
        for t in topics
        for p in t.partitions.values()
        if len(p.isr) < len(p.replicas)
    ]
    if not lacking:
        return Check("replicas", CheckVerdict.ok, "every replica is in sync")
    replicas = {n for t in topics for p in t.partitions.values() for n in p.replicas}
    missing = sorted(replicas - set(nodes))
    action = "see the logs of the nodes that are behind"
    if missing:
        action = f"start node {', '.join(map(str, missing))}"
    return Check("replicas", CheckVerdict.warn, f"{_some(lacking)} are under-replicated", action)


def _replication(topics: Sequence[TopicInfo], node_count: int) -> Check:
    alone = [
        t.name
        for t in topics
        if t.partitions and all(len(p.replicas) == 1 for p in t.partitions.values())
    ]
    if alone and node_count > 1:
        action = "add replicas with `penstock cluster reassign`, and set default.replication.factor"
        return Check(
            "replication", CheckVerdict.warn, f"{_some(alone)} have a single replica", action
        )
    return Check("replication", CheckVerdict.ok, "topics have as many replicas as the nodes allow")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    rest = len(names) - NAMED_MAX
    return f"{shown} and {rest} more" if rest > 0 else shown
