"""Nodes and partitions of the cluster: who leads what, who follows, how full the disks are."""

import asyncio
from functools import partial

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.gateway.console.console import Console
from penstock.gateway.console.route_row import ConsoleRow
from penstock.gateway.console.visibility import Visibility, sight_of
from penstock.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

PARTITIONS_MAX = 2_000


class NodeRow(Struct):
    node_id: int
    host: str
    port: int
    rack: str | None
    http: str | None
    is_controller: bool
    is_this: bool
    leads: int
    replicas: int
    size_bytes: int | None
    disk_total_bytes: int | None
    disk_free_bytes: int | None
    error: str
    """Why the node does not say how full it is."""


class ConsolePartitionRow(Struct):
    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    is_leaderless: bool
    is_behind: bool


class NodesAnswer(Struct):
    cluster_id: str
    controller: int
    nodes: list[NodeRow]
    partitions: list[ConsolePartitionRow]
    partition_count: int
    missing: list[int]
    """Nodes that have replicas and are not there."""


async def list_nodes(console: Console, request: Request) -> Response:
    sight = sight_of(console.ctx, request)
    if not sight.cluster():
        raise Refused(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{sight.principal} may not describe the cluster",
        )
    return await console.answers.of(sight.principal, "nodes", partial(_nodes, console, sight))


async def _nodes(console: Console, sight: Visibility) -> NodesAnswer:
    image = console.ctx.image
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    partitions: list[ConsolePartitionRow] = []
    count = 0
    for name, topic in sorted(image.topics.items()):
        for at, record in enumerate(topic.partitions):
            count += 1
            leads[record.leader] = leads.get(record.leader, 0) + 1
            for node in record.replicas:
                replicas[node] = replicas.get(node, 0) + 1
            if sight.topic(name):
                partitions.append(
                    ConsolePartitionRow(
                        name,
                        at,
                        record.leader,
                        list(record.replicas),
                        list(record.isr),
                        record.leader not in image.brokers,
                        len(record.isr) < len(record.replicas),
                    )
                )
    # What is wrong comes first, should there be too many to show.
    partitions.sort(key=lambda row: (not row.is_leaderless, not row.is_behind))
    disks = await asyncio.gather(*(_disk(console, node_id) for node_id in image.brokers))
    rows = [
        NodeRow(
            node_id,
            broker.host,
            broker.port,
            broker.rack,
            broker.http,
            node_id == image.controller_id,
            node_id == console.ctx.node_id,
            leads.get(node_id, 0),
            replicas.get(node_id, 0),
            *disk,
        )
        for (node_id, broker), disk in zip(image.brokers.items(), disks, strict=True)
    ]
    return NodesAnswer(
        image.cluster_id,
        image.controller_id,
        rows,
        partitions[:PARTITIONS_MAX],
        count,
        sorted(node for node in replicas if node not in image.brokers),
    )


async def _disk(console: Console, node_id: int) -> tuple[int | None, int | None, int | None, str]:
    """Bytes of logs, of the disk, and free; and why they are not known."""
    request = DescribeLogDirsRequest(topics=None)
    gateway = console.gateway
    try:
        if node_id == console.ctx.node_id:
            answer = await gateway.handlers.ask(
                console.own_principal, request, DescribeLogDirsResponse
            )
        else:
            answer = await gateway.coordinators.ask_node(node_id, request, DescribeLogDirsResponse)
    except (Refused, PeerError) as error:
        return None, None, None, str(error)
    size = sum(
        row.partition_size
        for folder in answer.results
        for topic in folder.topics
        for row in topic.partitions
    )
    total = sum(folder.total_bytes for folder in answer.results)
    free = sum(folder.usable_bytes for folder in answer.results)
    return size, total if total >= 0 else None, free if free >= 0 else None, ""


ROWS = (
    ConsoleRow("GET", "/nodes", "nodes, and the partitions that they lead and follow", list_nodes),
)
