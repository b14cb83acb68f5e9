"""What the metadata store says of partitions, against what it may say.

Looks at every revision of the store. Named promises:

- epochs: a partition's record was written over another than the one it was made from, so its
  epochs do not follow each other, or the leader changed without a new leader epoch;
- roles: the leader is not in sync, or somebody is in sync who is no replica, or is in sync and
  eligible at once;
- unclean: a leader was elected that need not have everything, although that is not allowed.

Keeps the newest record of every partition for other checkers (`record_of`).
"""

from penstock.base.store_model import StoreModel
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import NO_LEADER, PartitionRecord, TopicRecord
from simulation.checkers.witness import Witness

Key = tuple[str, int]
"""A topic id as it is shown in keys, and the partition."""


class MetadataChecker:
    """The records of all partitions as the store has them."""

    def __init__(self, world: Witness, space: StoreModel) -> None:
        self._world = world
        self._space = space
        self._revision = space.revision
        self.names: dict[str, str] = {}
        """Topic ids by name."""
        self._records: dict[Key, PartitionRecord] = {}
        for entry in space.range(store_keys.ALL):
            self._take(entry.key, entry.value)

    def record_of(self, topic: str, index: int) -> PartitionRecord | None:
        return self._records.get((self.names.get(topic, ""), index))

    def step(self) -> list[Key]:
        """Looks at what is new; answers the partitions that have another record now."""
        space = self._space
        if space.revision == self._revision:
            return []
        changed: list[Key] = []
        for revision in range(max(self._revision, space.compacted) + 1, space.revision + 1):
            for change in space.changes_at(revision, store_keys.ALL):
                key = self._take(change.key, change.value)
                if key is not None:
                    changed.append(key)
        self._revision = space.revision
        return changed

    def _take(self, name: str, value: bytes | None) -> Key | None:
        if value is None:
            return None
        if name.startswith(store_keys.TOPICS):
            topic = store_keys.decode(TopicRecord, value)
            self.names[name.removeprefix(store_keys.TOPICS)] = topic.id
            for index, record in enumerate(topic.partitions):
                self._records.setdefault((topic.id, index), record)
        elif name.startswith(store_keys.PARTITIONS):
            topic_id, _, number = name.removeprefix(store_keys.PARTITIONS).partition("/")
            key = (topic_id, int(number))
            record = store_keys.decode(PartitionRecord, value)
            before = self._records.get(key)
            self._records[key] = record
            self._check_roles(key, record)
            if before is not None:
                self._note(before, record)
                self._check_epochs(key, before, record)
                self._check_election(key, before, record)
            return key
        return None

    def _note(self, before: PartitionRecord, after: PartitionRecord) -> None:
        if set(before.isr) - set(after.isr):
            self._world.reached("isr shrunk")
        if set(after.isr) - set(before.isr):
            self._world.reached("isr expanded")
        if after.elr:
            self._world.reached("eligible leaders kept")
        if before.removing and not after.removing:
            self._world.reached("move finished")

    def _check_roles(self, key: Key, record: PartitionRecord) -> None:
        isr, elr, replicas = set(record.isr), set(record.elr), set(record.replicas)
        if record.leader not in (NO_LEADER, *record.isr):
            self._violate("roles", key, f"its leader is not in sync: {record}")
        if not isr | elr <= replicas or isr & elr:
            self._violate("roles", key, f"in sync, eligible and replicas do not fit: {record}")

    def _check_epochs(self, key: Key, before: PartitionRecord, after: PartitionRecord) -> None:
        if after.partition_epoch != before.partition_epoch + 1:
            self._violate("epochs", key, f"{after} was not made from {before}")
        is_new = after.leader != before.leader
        if not before.leader_epoch + is_new <= after.leader_epoch <= before.leader_epoch + 1:
            self._violate("epochs", key, f"{after} has the leader epoch of another, {before}")

    def _check_election(self, key: Key, before: PartitionRecord, after: PartitionRecord) -> None:
        if after.leader in (before.leader, NO_LEADER):
            return
        self._world.reached("leader elected")
        able = before.isr + before.elr
        if after.leader in before.elr:
            self._world.reached("leader elected from the eligible")
        if not able:
            able = before.last_known_elr
            self._world.reached("last known leader elected")
        if after.leader not in able:
            self._violate("unclean", key, f"{after} after {before}")

    def _violate(self, name: str, key: Key, text: str) -> None:
        topic = next((topic for topic, found in self.names.items() if found == key[0]), key[0])
        self._world.violate(name, f"{topic}-{key[1]}: {text}")
