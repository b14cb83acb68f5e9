"""What the doctor says of a cluster, from its metadata."""

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.cli.cluster.cluster_checks import judge_cluster, unreachable
from penstock.cli.cluster.machine_checks import Check, CheckVerdict
from penstock.client.metadata import PartitionInfo, TopicInfo


def topic(name: str, *rows: tuple[int, tuple[int, ...], tuple[int, ...]]) -> TopicInfo:
    """Leader, replicas and ISR of each partition."""
    partitions = {
        index: PartitionInfo(index, leader, 0, replicas, isr, (), ErrorCode.NONE)
        for index, (leader, replicas, isr) in enumerate(rows)
    }
    return TopicInfo(name, TopicId(bytes(16)), False, partitions)


def judged(topics: list[TopicInfo], nodes: list[int], controller: int = 1) -> dict[str, Check]:
    return {check.name: check for check in judge_cluster(topics, nodes, controller)}


def test_a_cluster_with_every_copy_in_place_is_well() -> None:
    found = judged([topic("t", (1, (1, 2, 3), (1, 2, 3)))], [1, 2, 3])
    assert {check.verdict for check in found.values()} == {CheckVerdict.ok}


def test_a_partition_without_a_leader_fails_by_name() -> None:
    found = judged([topic("t", (1, (1,), (1,)), (-1, (4,), (4,)))], [1, 2, 3])
    assert found["leaders"].verdict is CheckVerdict.fail
    assert "t-1" in found["leaders"].finding
    assert found["replication"].verdict is CheckVerdict.warn


def test_a_missing_copy_names_the_node_to_start() -> None:
    found = judged([topic("t", (1, (1, 2, 3), (1, 2)))], [1, 2])
    assert found["replicas"].verdict is CheckVerdict.warn
    assert "start node 3" in found["replicas"].action
    assert "third" in found["cluster"].action


def test_many_names_are_cut_short() -> None:
    rows = [(1, (1, 2), (1,))] * 8
    found = judged([topic("t", *rows)], [1, 2, 3])
    assert found["replicas"].finding.startswith("t-0, t-1, t-2, t-3, t-4 and 3 more")


def test_a_controller_that_is_not_there_fails() -> None:
    assert judged([], [1, 2, 3], 9)["cluster"].verdict is CheckVerdict.fail
    assert unreachable("refused").verdict is CheckVerdict.fail


def test_one_copy_is_all_that_one_node_can_have() -> None:
    found = judged([topic("t", (1, (1,), (1,)))], [1])
    assert found["replication"].verdict is CheckVerdict.ok
