"""Producers of a disk that fills up and of full backlogs: put off, refused, and let go on."""

from penstock.base.errors import ErrorCode
from penstock.broker.api.data.produce import produce
from penstock.cluster.storage.write_pressure import BLOCKED_SECONDS, Full, Policy
from tests.run_with import run_with
from tests.unit.broker.api.harness import Client, Node, on_node
from tests.unit.broker.api.producing import VERSION, batch, request, rows


async def write(node: Node, *topics: str, acks: int = -1) -> tuple[list[int], int, float]:
    """Error codes, throttle time, and for how long the connection was muted."""
    client = Client()
    asked = request(*((topic, 0, batch()) for topic in topics or ("t",)), acks=acks)
    pending = await node.send(produce, VERSION, asked, client)
    if acks == 0:
        return [], 0, client.muted_s
    answer = await pending.reply()
    return [row.error_code for row in rows(answer)], answer.throttle_time_ms, client.muted_s


def throttles(node: Node, kind: str) -> float:
    return node.ctx.metrics.catalogue.families["penstock_throttles_total"].counter(kind).value


@run_with(on_node)
async def test_disk_above_its_watermark_throttles_producers(
    node: Node,
) -> None:
    await node.create("t", 1)
    assert await write(node) == ([0], 0, 0.0)
    node.ctx.partitions.pressure.set_disk(None, 0.25)
    assert await write(node) == ([0], 250, 0.25)
    assert await write(node, acks=0) == ([], 0, 0.25)
    assert throttles(node, "disk") == 2
    node.ctx.partitions.pressure.set_disk(None)
    assert await write(node) == ([0], 0, 0.0)


@run_with(on_node)
async def test_full_backlog_with_block_policy_throttles_and_refuses(node: Node) -> None:
    await node.create("t", 1)
    await node.create("u", 1)
    node.ctx.partitions.pressure.set_full_backlogs({("t", 0): Full(Policy.BLOCK, "full")})
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    assert await write(node, "t", "u") == ([storage, 0], 1000, BLOCKED_SECONDS)
    assert await write(node, "u") == ([0], 0, 0.0)
    assert throttles(node, "backlog") == 1
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    assert partition.log.end_offset == 0


@run_with(on_node)
async def test_full_backlog_with_reject_policy_refuses_at_once(node: Node) -> None:
    await node.create("t", 1)
    node.ctx.partitions.pressure.set_full_backlogs({("t", 0): Full(Policy.REJECT, "full")})
    assert await write(node) == ([ErrorCode.POLICY_VIOLATION], 0, 0.0)
    node.ctx.partitions.pressure.set_full_backlogs({})
    assert await write(node) == ([0], 0, 0.0)
