"""How evenly partitions are written to, from one round to the next."""

from penstock.cluster.storage.partition_skew import PartitionSkew, Warmth
from tests.unit.broker.api.harness import Node, on_node


def test_what_is_appended_between_rounds_counts_and_nothing_older() -> None:
    async def test(node: Node) -> None:
        await node.create("t", 3)
        await node.create("idle", 1)
        await node.produce("t", 4, index=0)
        heat = PartitionSkew(node.ctx.partitions)
        await heat.look()
        assert heat.topics == {"idle": Warmth(1), "t": Warmth(3)}
        before = node.ctx.partitions.get("t", 1)
        assert before is not None
        await node.produce("t", 5, index=1)
        await node.produce("t", 1, index=2)
        await heat.look()
        assert heat.topics["t"] == Warmth(3, 6, 5)
        await heat.look()
        assert heat.topics["t"] == Warmth(3, 0, 0)

    on_node(test)


def test_topics_of_the_broker_are_left_out() -> None:
    async def test(node: Node) -> None:
        await node.ctx.group.groups.ensure()
        heat = PartitionSkew(node.ctx.partitions)
        await heat.look()
        assert heat.topics == {}

    on_node(test, configs={"offsets.topic.num.partitions": "2"})
