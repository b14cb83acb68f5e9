"""Records that the controller examines, and how rarely."""

from msgspec.structs import replace

from penstock.base.ids import TopicId, show_topic_id
from penstock.base.ports import Change
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller.controller_decisions import (
    BALANCED_MAX,
    ControllerDecisions,
    balance,
    is_stable,
)
from penstock.cluster.controller.placement import initial_record
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import EMPTY, Image
from penstock.cluster.metadata.store_keys import (
    NO_LEADER,
    BrokerRecord,
    DeletedRecord,
    PartitionRecord,
    TopicRecord,
)

TOPIC = TopicId(bytes([7]) * 16)
UP = {node: BrokerRecord(node, "h", node) for node in (1, 2, 3)}
RECORD = initial_record((1, 2, 3))


def broker(node: int, is_up: bool = True) -> Change:
    value = store_keys.encode(UP[node]) if is_up else None
    return Change(store_keys.broker_key(node), value, 1)


def topic(*partitions: PartitionRecord, **configs: str) -> Change:
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    record = TopicRecord(show_topic_id(TOPIC), partitions, dotted)
    return Change(store_keys.topic_key("t"), store_keys.encode(record), 2)


def state(record: PartitionRecord, index: int = 0) -> Change:
    return Change(store_keys.partition_key(TOPIC, index), store_keys.encode(record), 3)


def three_up(*changes: Change) -> Image:
    return EMPTY.apply([broker(1), broker(2), broker(3), *changes])


def indexes(decisions: ControllerDecisions, image: Image) -> list[int]:
    return [update.index for update in decisions.updates(image)]


def test_partition_is_stable_when_all_in_sync_are_up_and_nothing_moves() -> None:
    assert is_stable(RECORD, UP)
    assert not is_stable(replace(RECORD, leader=NO_LEADER), UP)
    assert not is_stable(replace(RECORD, isr=(1, 4)), UP)
    assert not is_stable(replace(RECORD, elr=(2,), isr=(1,)), UP)
    assert not is_stable(replace(RECORD, adding=(2,)), UP)
    assert not is_stable(RECORD, {**UP, 1: replace(UP[1], is_draining=True)})


def test_dead_broker_selects_its_partitions_leaderless_first() -> None:
    decisions = ControllerDecisions(BrokerConfigs())
    image = three_up(topic(initial_record((2, 1)), initial_record((1, 2)), initial_record((3,))))
    assert indexes(decisions, image) == []
    assert indexes(decisions, image.apply([broker(1, is_up=False)])) == [1, 0]


def test_update_is_not_requested_twice_until_its_record_changes() -> None:
    decisions = ControllerDecisions(BrokerConfigs())
    image = three_up(topic(initial_record((1, 2)))).apply([broker(1, is_up=False)])
    assert indexes(decisions, image) == [0]
    assert indexes(decisions, image) == []
    # Another update was faster, with a different result.
    image = image.apply([state(replace(initial_record((1, 2)), partition_epoch=1))])
    assert indexes(decisions, image) == [0]
    decisions.is_unfinished = True
    assert indexes(decisions, image) == [0]
    decisions.forget()
    assert indexes(decisions, image) == [0]


def test_topic_config_change_reexamines_the_topic() -> None:
    decisions = ControllerDecisions(BrokerConfigs())
    leaderless = PartitionRecord(replicas=(4, 1), leader=NO_LEADER, isr=(), elr=(4,))
    image = three_up(topic(leaderless))
    assert indexes(decisions, image) == []
    image = image.apply([topic(leaderless, unclean_leader_election_enable="true")])
    assert indexes(decisions, image) == [0]


def test_cluster_config_change_reexamines_every_partition() -> None:
    configs = BrokerConfigs()
    decisions = ControllerDecisions(configs)
    leaderless = PartitionRecord(replicas=(4, 1), leader=NO_LEADER, isr=(), elr=(4,))
    image = three_up(topic(leaderless))
    assert indexes(decisions, image) == []
    configs.follow({"unclean.leader.election.enable": "true"}, {})
    assert indexes(decisions, image) == [0]


def test_deletions_are_examined_once_per_change() -> None:
    decisions = ControllerDecisions(BrokerConfigs())
    waiting = store_keys.encode(DeletedRecord("a", 1, (1, 2), (1,)))
    done = store_keys.encode(DeletedRecord("a", 1, (1, 2), (2, 1)))
    image = three_up(Change(store_keys.deleted_key(TOPIC), waiting, 5))
    assert decisions.finished_deletions(image) == []
    image = image.apply([Change(store_keys.deleted_key(TOPIC), done, 6)])
    assert decisions.finished_deletions(image) == [TOPIC]
    assert decisions.finished_deletions(image) == []


def test_balance_hands_back_leadership_in_limited_batches() -> None:
    away = replace(initial_record((1, 2)), leader=2)
    image = three_up(topic(away, replace(away, isr=(2,)), initial_record((1, 2))))
    assert [update.index for update in balance(image)] == [0]
    many = three_up(topic(*[away] * (BALANCED_MAX + 5)))
    assert len(balance(many)) == BALANCED_MAX
