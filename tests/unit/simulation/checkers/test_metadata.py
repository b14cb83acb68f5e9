"""`MetadataChecker`: records follow from each other, and leaders from those who have everything."""

from msgspec.structs import replace

from penstock.base.ids import show_topic_id
from penstock.base.ports import Put
from penstock.base.store_model import StoreModel
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import NO_LEADER, PartitionRecord, TopicRecord
from simulation.checkers.metadata import MetadataChecker
from tests.unit.simulation.checkers.stage import Stage

TOPIC_ID = bytes(range(16))
BIRTH = PartitionRecord(replicas=(1, 2, 3), leader=1, isr=(1, 2, 3))


class Scene:
    """A store with one partition."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.space = StoreModel()
        topic = TopicRecord(id=show_topic_id(TOPIC_ID), partitions=(BIRTH,))  # type: ignore[arg-type]
        self.space.apply([Put(store_keys.topic_key("t"), store_keys.encode(topic))])
        self.checker = MetadataChecker(self.stage, self.space)

    def write(self, record: PartitionRecord) -> list[str]:
        """Answers what the checker says of it."""
        key = store_keys.partition_key(TOPIC_ID, 0)  # type: ignore[arg-type]
        self.space.apply([Put(key, store_keys.encode(record))])
        self.checker.step()
        return self.stage.found

    @property
    def now(self) -> PartitionRecord:
        record = self.checker.record_of("t", 0)
        assert record is not None
        return record


def following(before: PartitionRecord, **changes: object) -> PartitionRecord:
    after = replace(before, **changes, partition_epoch=before.partition_epoch + 1)
    is_new = after.leader != before.leader
    return replace(after, leader_epoch=before.leader_epoch + is_new)


def test_a_shrink_an_election_and_a_return_are_well() -> None:
    scene = Scene()
    assert scene.now == BIRTH
    scene.write(following(scene.now, isr=(2, 3), leader=2))
    scene.write(following(scene.now, isr=(2,), elr=(3,)))
    scene.write(following(scene.now, isr=(), elr=(2, 3), leader=NO_LEADER))
    scene.write(following(scene.now, isr=(3,), elr=(2,), leader=3))
    scene.write(following(scene.now, isr=(1, 2, 3), elr=()))
    assert scene.stage.found == []


def test_a_record_made_from_another_than_the_last_is_found() -> None:
    scene = Scene()
    lost = following(BIRTH, isr=(1, 2))
    scene.write(following(BIRTH, isr=(1, 3)))
    assert scene.write(lost) == ["epochs"]


def test_a_new_leader_in_the_old_epoch_is_found() -> None:
    scene = Scene()
    record = following(BIRTH, leader=2)
    assert scene.write(replace(record, leader_epoch=0)) == ["epochs"]


def test_a_leader_that_need_not_have_everything_is_found() -> None:
    scene = Scene()
    scene.write(following(BIRTH, isr=(1, 2)))
    assert scene.write(following(scene.now, leader=3, isr=(1, 2, 3))) == ["unclean"]


def test_the_last_known_leader_may_lead_when_nobody_else_can() -> None:
    scene = Scene()
    scene.write(following(BIRTH, isr=(), leader=NO_LEADER, last_known_elr=(1,)))
    assert scene.write(following(scene.now, isr=(1,), leader=1)) == []


def test_roles_that_do_not_fit_are_found() -> None:
    assert Scene().write(following(BIRTH, isr=(2, 3))) == ["roles"]
    assert Scene().write(following(BIRTH, elr=(3,))) == ["roles"]
    assert Scene().write(following(BIRTH, isr=(1, 4))) == ["roles"]
