"""Checker of partition records in every revision of the metadata store.

Violations:

- epochs: a record replaced another one than the one it was derived from, so its epochs are not
  consecutive, or the leader changed without a new leader epoch;
- roles: the leader is not in the ISR, a member of ISR or ELR is not a replica, or a node is in both
  ISR and ELR;
- unclean: an elected leader may lack committed records, although that is not allowed.

Keeps the newest record of every partition for other checkers (`record_of`).
"""

from penstock.base.store_model import StoreModel
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import NO_LEADER, PartitionRecord, TopicRecord
from simulation.checkers.context import CheckerContext

Key = tuple[str, int]
"""Topic id as text, as in the store's keys, and partition."""


class MetadataChecker:
    """Partition records in the metadata store."""

    def __init__(self, world: CheckerContext, space: StoreModel) -> None:
        self._world = world
        self._space = space
        self._revision = space.revision
        self.names: dict[str, str] = {}
        """Topic id by name."""
        self._records: dict[Key, PartitionRecord] = {}
        for entry in space.range(store_keys.ALL):
            self._take(entry.key, entry.value)

    def record_of(self, topic: str, index: int) -> PartitionRecord | None:
        return self._records.get((self.names.get(topic, ""), index))

    def step(self) -> list[Key]:
        """Checks new revisions; returns the partitions with a changed record."""
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
            self._violate("roles", key, f"the leader is not in the ISR: {record}")
        if not isr | elr <= replicas or isr & elr:
            self._violate("roles", key, f"ISR, ELR and replicas are inconsistent: {record}")

    def _check_epochs(self, key: Key, before: PartitionRecord, after: PartitionRecord) -> None:
        if after.partition_epoch != before.partition_epoch + 1:
            self._violate("epochs", key, f"{after} is not the successor of {before}")
        is_new = after.leader != before.leader
        if not before.leader_epoch + is_new <= after.leader_epoch <= before.leader_epoch + 1:
            self._violate("epochs", key, f"invalid leader epoch in {after} after {before}")

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
