"""Nodes and partitions of the cluster: leaders, replicas, disk usage."""

import asyncio
from functools import partial

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.fair_scheduler import Steps
from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.visibility import Visibility, visibility_of
from penstock.gateway.core.cluster_types import Image
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
    """Reason why the disk usage is unknown."""


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
    """Nodes that have replicas, but are not in the cluster."""


async def list_nodes(console: Console, request: Request) -> Response:
    visibility = visibility_of(console.ctx, request)
    if not visibility.cluster():
        raise Refused(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{visibility.principal} lacks DESCRIBE permission on the cluster: ask an "
            "administrator to grant it",
        )
    return await console.answers.of(
        visibility.principal, "nodes", partial(_nodes, console, visibility)
    )


def _partitions(
    image: Image, visibility: Visibility, leads: dict[int, int], replicas: dict[int, int]
) -> Steps[list[ConsolePartitionRow]]:
    """Returns the visible partitions; counts all by their leader and by their replicas."""
    partitions: list[ConsolePartitionRow] = []
    for name, topic in sorted(image.topics.items()):
        yield
        is_visible = visibility.topic(name)
        for at, record in enumerate(topic.partitions):
            yield
            leads[record.leader] = leads.get(record.leader, 0) + 1
            for node in record.replicas:
                replicas[node] = replicas.get(node, 0) + 1
            if is_visible:
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
    # Problems come first, in case there are too many partitions to show.
    partitions.sort(key=lambda row: (not row.is_leaderless, not row.is_behind))
    return partitions


async def _nodes(console: Console, visibility: Visibility) -> NodesAnswer:
    image = console.ctx.image
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    partitions = await console.ctx.metadata.scheduler.do(
        visibility.principal.holder, _partitions(image, visibility, leads, replicas)
    )
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
        sum(leads.values()),
        sorted(node for node in replicas if node not in image.brokers),
    )


async def _disk(console: Console, node_id: int) -> tuple[int | None, int | None, int | None, str]:
    """Returns bytes of logs, of the disk, and free; and the reason if they are unknown."""
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
    ConsoleRow("GET", "/nodes", "list nodes and partitions with leaders and replicas", list_nodes),
)
