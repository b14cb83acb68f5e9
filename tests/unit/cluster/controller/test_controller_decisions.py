"""What the controller looks at, and how rarely."""

from msgspec.structs import replace

from penstock.base.ids import TopicId, show_topic_id
from penstock.base.ports import Change
from penstock.cluster.configs.configs import BrokerConfigs
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


def indexes(duties: ControllerDecisions, image: Image) -> list[int]:
    return [wish.index for wish in duties.updates(image)]


def test_a_partition_is_settled_when_all_in_sync_are_up_and_nothing_moves() -> None:
    assert is_stable(RECORD, UP)
    assert not is_stable(replace(RECORD, leader=NO_LEADER), UP)
    assert not is_stable(replace(RECORD, isr=(1, 4)), UP)
    assert not is_stable(replace(RECORD, elr=(2,), isr=(1,)), UP)
    assert not is_stable(replace(RECORD, adding=(2,)), UP)
    assert not is_stable(RECORD, {**UP, 1: replace(UP[1], is_draining=True)})


def test_a_dead_broker_makes_all_partitions_of_interest_leaderless_ones_first() -> None:
    duties = ControllerDecisions(BrokerConfigs())
    image = three_up(topic(initial_record((2, 1)), initial_record((1, 2)), initial_record((3,))))
    assert indexes(duties, image) == []
    assert indexes(duties, image.apply([broker(1, is_up=False)])) == [1, 0]


def test_what_was_wished_for_is_not_wished_again_until_it_changes() -> None:
    duties = ControllerDecisions(BrokerConfigs())
    image = three_up(topic(initial_record((1, 2)))).apply([broker(1, is_up=False)])
    assert indexes(duties, image) == [0]
    assert indexes(duties, image) == []
    # Somebody else was faster, but not with what is wanted.
    image = image.apply([state(replace(initial_record((1, 2)), partition_epoch=1))])
    assert indexes(duties, image) == [0]
    duties.is_unfinished = True
    assert indexes(duties, image) == [0]
    duties.forget()
    assert indexes(duties, image) == [0]


def test_a_config_makes_a_topic_worth_another_look() -> None:
    duties = ControllerDecisions(BrokerConfigs())
    nobody = PartitionRecord(replicas=(4, 1), leader=NO_LEADER, isr=(), elr=(4,))
    image = three_up(topic(nobody))
    assert indexes(duties, image) == []
    image = image.apply([topic(nobody, unclean_leader_election_enable="true")])
    assert indexes(duties, image) == [0]


def test_a_config_of_the_cluster_makes_everything_worth_another_look() -> None:
    configs = BrokerConfigs()
    duties = ControllerDecisions(configs)
    nobody = PartitionRecord(replicas=(4, 1), leader=NO_LEADER, isr=(), elr=(4,))
    image = three_up(topic(nobody))
    assert indexes(duties, image) == []
    configs.follow({"unclean.leader.election.enable": "true"}, {})
    assert indexes(duties, image) == [0]


def test_deletions_are_looked_at_once_for_each_change() -> None:
    duties = ControllerDecisions(BrokerConfigs())
    waiting = store_keys.encode(DeletedRecord("a", 1, (1, 2), (1,)))
    done = store_keys.encode(DeletedRecord("a", 1, (1, 2), (2, 1)))
    image = three_up(Change(store_keys.deleted_key(TOPIC), waiting, 5))
    assert duties.finished_deletions(image) == []
    image = image.apply([Change(store_keys.deleted_key(TOPIC), done, 6)])
    assert duties.finished_deletions(image) == [TOPIC]
    assert duties.finished_deletions(image) == []


def test_balance_hands_back_what_it_may_and_not_too_much_at_once() -> None:
    away = replace(initial_record((1, 2)), leader=2)
    image = three_up(topic(away, replace(away, isr=(2,)), initial_record((1, 2))))
    assert [wish.index for wish in balance(image)] == [0]
    many = three_up(topic(*[away] * (BALANCED_MAX + 5)))
    assert len(balance(many)) == BALANCED_MAX
