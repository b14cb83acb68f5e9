"""`MetadataChecker`: consecutive partition records, and clean elections."""

from msgspec.structs import replace

from penstock.base.ids import show_topic_id
from penstock.base.ports import Put
from penstock.base.store_model import StoreModel
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import NO_LEADER, PartitionRecord, TopicRecord
from simulation.checkers.metadata import MetadataChecker
from tests.unit.simulation.checkers.fake_context import FakeContext

TOPIC_ID = bytes(range(16))
BIRTH = PartitionRecord(replicas=(1, 2, 3), leader=1, isr=(1, 2, 3))


class StoreFixture:
    """Store with one partition."""

    def __init__(self) -> None:
        self.context = FakeContext()
        self.space = StoreModel()
        topic = TopicRecord(id=show_topic_id(TOPIC_ID), partitions=(BIRTH,))  # type: ignore[arg-type]
        self.space.apply([Put(store_keys.topic_key("t"), store_keys.encode(topic))])
        self.checker = MetadataChecker(self.context, self.space)

    def write(self, record: PartitionRecord) -> list[str]:
        """Writes a record; returns the violations."""
        key = store_keys.partition_key(TOPIC_ID, 0)  # type: ignore[arg-type]
        self.space.apply([Put(key, store_keys.encode(record))])
        self.checker.step()
        return self.context.found

    @property
    def now(self) -> PartitionRecord:
        record = self.checker.record_of("t", 0)
        assert record is not None
        return record


def following(before: PartitionRecord, **changes: object) -> PartitionRecord:
    after = replace(before, **changes, partition_epoch=before.partition_epoch + 1)
    is_new = after.leader != before.leader
    return replace(after, leader_epoch=before.leader_epoch + is_new)


def test_valid_isr_changes_and_elections_are_accepted() -> None:
    fixture = StoreFixture()
    assert fixture.now == BIRTH
    fixture.write(following(fixture.now, isr=(2, 3), leader=2))
    fixture.write(following(fixture.now, isr=(2,), elr=(3,)))
    fixture.write(following(fixture.now, isr=(), elr=(2, 3), leader=NO_LEADER))
    fixture.write(following(fixture.now, isr=(3,), elr=(2,), leader=3))
    fixture.write(following(fixture.now, isr=(1, 2, 3), elr=()))
    assert fixture.context.found == []


def test_overwritten_record_is_a_violation() -> None:
    fixture = StoreFixture()
    lost = following(BIRTH, isr=(1, 2))
    fixture.write(following(BIRTH, isr=(1, 3)))
    assert fixture.write(lost) == ["epochs"]


def test_new_leader_in_the_old_epoch_is_a_violation() -> None:
    fixture = StoreFixture()
    record = following(BIRTH, leader=2)
    assert fixture.write(replace(record, leader_epoch=0)) == ["epochs"]


def test_unclean_leader_is_a_violation() -> None:
    fixture = StoreFixture()
    fixture.write(following(BIRTH, isr=(1, 2)))
    assert fixture.write(following(fixture.now, leader=3, isr=(1, 2, 3))) == ["unclean"]


def test_last_known_leader_may_be_elected_without_isr_and_elr() -> None:
    fixture = StoreFixture()
    fixture.write(following(BIRTH, isr=(), leader=NO_LEADER, last_known_elr=(1,)))
    assert fixture.write(following(fixture.now, isr=(1,), leader=1)) == []


def test_inconsistent_roles_are_a_violation() -> None:
    assert StoreFixture().write(following(BIRTH, isr=(2, 3))) == ["roles"]
    assert StoreFixture().write(following(BIRTH, elr=(3,))) == ["roles"]
    assert StoreFixture().write(following(BIRTH, isr=(1, 4))) == ["roles"]
