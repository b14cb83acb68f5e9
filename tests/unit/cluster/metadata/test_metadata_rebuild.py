"""`penstock.cluster.metadata.metadata_rebuild`: leaders and ISRs from the nodes' logs."""

from penstock.base.ids import TopicId, show_topic_id
from penstock.base.ports import Put, StoreEntry
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.metadata_rebuild import LogReport, NodeReport, plan
from penstock.cluster.metadata.store_keys import PartitionRecord, TopicRecord

TOPIC = TopicId(bytes(15) + b"\x01")
BORN = PartitionRecord((1, 2, 3), 1, (1, 2, 3))


def planned(record: PartitionRecord, *ranks: tuple[int, int]) -> PartitionRecord:
    """The record after a recovery; `ranks` are last epoch and end of the logs of nodes 1, 2, 3."""
    key = store_keys.partition_key(TOPIC, 0)
    store = {
        store_keys.topic_key("t"): store_keys.encode(TopicRecord(show_topic_id(TOPIC), (BORN,))),
        key: store_keys.encode(record),
    }
    reports = [
        NodeReport(node, "c", None, (LogReport(show_topic_id(TOPIC), 0, "t", epoch, epoch, end),))
        for node, (epoch, end) in enumerate(ranks, 1)
    ]
    entries = [StoreEntry(name, value, 1) for name, value in store.items()]
    found = plan(entries, reports, (), "r")
    assert found.missing == []
    changes = {change.key: change for change in found.changes}
    change = changes[key]
    assert isinstance(change, Put)
    return store_keys.decode(PartitionRecord, change.value)


def test_longest_logs_of_the_last_epoch_are_in_sync() -> None:
    after = planned(BORN, (4, 7), (4, 9), (4, 9))
    assert (after.leader, after.isr, after.is_recovering) == (2, (2, 3), False)
    assert after.leader_epoch > 4


def test_unreconciled_replicas_may_still_follow_the_unclean_election() -> None:
    record = PartitionRecord(
        (1, 2, 3), 2, (2,), is_recovering=True, unclean_epoch=5, unreconciled=(1, 3)
    )
    after = planned(record, (4, 90), (5, 60), (5, 60))
    assert (after.leader, after.isr) == (2, (2, 3))
    assert (after.is_recovering, after.unclean_epoch, after.unreconciled) == (True, 5, (1,))
