"""Distribution of writes over partitions, from one round to the next."""

from penstock.node.metrics.node_metrics import PartitionSkew, TopicSkew
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


@run_with(on_node)
async def test_skew_counts_appends_between_rounds_only(node: Node) -> None:
    await node.create("t", 3)
    await node.create("idle", 1)
    await node.produce("t", 4, index=0)
    skew = PartitionSkew(node.ctx.partitions)
    await skew.run_round()
    assert skew.topics == {"idle": TopicSkew(1), "t": TopicSkew(3)}
    before = node.ctx.partitions.get("t", 1)
    assert before is not None
    await node.produce("t", 5, index=1)
    await node.produce("t", 1, index=2)
    await skew.run_round()
    assert skew.topics["t"] == TopicSkew(3, 6, 5)
    await skew.run_round()
    assert skew.topics["t"] == TopicSkew(3, 0, 0)


@run_with(on_node, configs={"offsets.topic.num.partitions": "2"})
async def test_internal_topics_are_excluded_from_skew(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    skew = PartitionSkew(node.ctx.partitions)
    await skew.run_round()
    assert skew.topics == {}
