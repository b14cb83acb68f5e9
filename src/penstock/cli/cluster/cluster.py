"""`penstock cluster`: nodes, controller, leaders and replicas of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.cluster import moves
from penstock.cli.cluster.accept_loss import accept_loss
from penstock.cli.cluster.recover_metadata import recover_metadata
from penstock.cli.terminal.output import OutputFormat, format_option, print_data, print_table
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from penstock.client.metadata import PartitionInfo, TopicInfo

ASK_SECONDS = 5.0
"""Time limit for the answer of one node. A node that does not answer is still listed."""


@click.group("cluster", no_args_is_help=True)
def cluster() -> None:
    """Inspect and change the cluster: nodes, leaders, replicas."""


for command in moves.COMMANDS:
    cluster.add_command(command)
cluster.add_command(recover_metadata)


cluster.add_command(accept_loss)


@cluster.command("describe")
@brokers_option
@format_option
def describe(brokers: str, format: OutputFormat) -> None:
    """Show nodes, controller, leaders per node, and under-replicated partitions.

    \b
    penstock cluster describe
    penstock cluster describe --format json
    """
    document = run(brokers, describe_cluster)
    if format.is_data:
        print_data(document, format)
        return
    nodes = document["nodes"]
    assert isinstance(nodes, list)
    print(f"cluster {document['cluster_id']}, controller {document['controller']}")
    columns = ["node ", "address", "rack", "pid ", "controller", "leads ", "replicas ", "in-sync "]
    keys = ("id", "address", "rack", "pid", "controller", "leads", "replicas", "in_sync")
    print_table(columns, [[node[key] for key in keys] for node in nodes])
    print(
        f"{document['topics']} topics, {document['partitions']} partitions: "
        f"{document['under_replicated']} under-replicated, {document['offline']} without a leader"
    )


async def describe_cluster(session: CommandSession) -> dict[str, object]:
    import asyncio

    from penstock.client.admin.admin import Admin

    topics = await Admin(session.cluster).list_topics()
    metadata = session.cluster.metadata
    brokers = sorted(metadata.brokers.values(), key=lambda broker: broker.node_id)
    pids = await asyncio.gather(*(_pid_of(session, broker.node_id) for broker in brokers))
    partitions = [p for topic in topics for p in topic.partitions.values()]
    nodes: list[dict[str, object]] = [
        {
            "id": broker.node_id,
            "pid": pid,
            "address": str(broker.address),
            "rack": broker.rack,
            "controller": broker.node_id == metadata.controller_id,
            **_counts(partitions, broker.node_id),
        }
        for broker, pid in zip(brokers, pids, strict=True)
    ]
    return {
        "cluster_id": metadata.cluster_id,
        "controller": metadata.controller_id,
        "nodes": nodes,
        "topics": len(topics),
        "partitions": len(partitions),
        "under_replicated": sum(len(p.isr) < len(p.replicas) for p in partitions),
        "offline": sum(p.leader_id < 0 for p in partitions),
        "under_replicated_partitions": _names(topics),
    }


async def _pid_of(session: CommandSession, node_id: int) -> int | None:
    """Asks a node for its process id; None if it does not answer or is not a Penstock node."""
    import asyncio

    from penstock.base.errors import PeerError, Refused
    from penstock.client.admin.admin import BROKER, Admin

    try:
        async with asyncio.timeout(ASK_SECONDS):
            entries = await Admin(session.cluster).describe_configs(
                BROKER, str(node_id), ["process.id"]
            )
    except (OSError, Refused, PeerError):
        return None
    return next((int(e.value) for e in entries if e.value and e.value != "0"), None)


def _counts(partitions: list[PartitionInfo], node_id: int) -> dict[str, int]:
    return {
        "leads": sum(p.leader_id == node_id for p in partitions),
        "replicas": sum(node_id in p.replicas for p in partitions),
        "in_sync": sum(node_id in p.isr for p in partitions),
    }


def _names(topics: list[TopicInfo]) -> list[str]:
    return [
        f"{topic.name}-{p.index}"
        for topic in topics
        for p in topic.partitions.values()
        if len(p.isr) < len(p.replicas)
    ]
