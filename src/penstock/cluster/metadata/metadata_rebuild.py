"""Recovery of the metadata store from what the nodes have seen, and from their logs. Pure.

Every node gives a report: its file of the store's metadata (`known_metadata`), and the end of each
of its logs. When all nodes have reported that could have a replica, or are given up, a plan is made
of all reports and the present store, so the order of the reports does not matter:

- the newest report decides on topics, configs, ACLs and quotas. It has every topic that ever had a
  record, since a topic is persisted before it is served;
- a partition's leader and ISR are the replicas whose logs rank highest, by the epoch of the last
  record and then by the end: no other log has a committed record that theirs lack. Epochs continue
  above all that were seen;
- producer ids continue above all that were seen, by a wide margin if a node is given up or has
  persisted nothing;
- a topic that only the store knows stays if a log of it exists or its deletion is not known, and is
  deleted if the newest report knows of its deletion;
- what is not known at all (configs of a topic of which there are only logs, passwords) is reported.

Nothing here removes a log: a deleted topic is marked as deleted again.
Elsewhere: reading and writing (`node.metadata_recovery`), the command
(`cli.cluster.recover_metadata`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from penstock.base.ids import TopicId, parse_topic_id, show_topic_id
from penstock.base.ports import Delete, Put, StoreEntry
from penstock.cluster.controller.leader_elections import reconciled
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.known_metadata import KnownMetadata, is_secret
from penstock.cluster.metadata.store_keys import (
    ClusterRecord,
    ConfigsRecord,
    DeletedRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RecoveredRecord,
    TopicRecord,
)

SPARE_PRODUCER_IDS = 2**32
"""Producer ids skipped if it is unknown which ids are in use. There are 2^63."""
CONFIGS = (store_keys.CLUSTER_CONFIGS, store_keys.BROKER_CONFIGS, store_keys.GROUP_CONFIGS)
TABLES = (*CONFIGS, store_keys.FANOUTS, store_keys.ACLS, store_keys.QUOTAS)
NO_CONFIGS = store_keys.encode(ConfigsRecord())


class LogReport(msgspec.Struct, array_like=True, frozen=True):
    """Report of one log."""

    topic_id: str
    index: int
    name: str
    """Name of the topic, as in its directory: shortened if it is long."""
    latest_epoch: int
    last_epoch: int
    end_offset: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.last_epoch, self.end_offset


class NodeReport(msgspec.Struct, frozen=True):
    """Report of one node for a recovery."""

    node_id: int
    cluster_id: str
    known: KnownMetadata | None = None
    logs: tuple[LogReport, ...] = ()


@dataclass(slots=True)
class RecoveryPlan:
    """Result of planning a recovery."""

    missing: list[int]
    """Nodes that have yet to report; nothing is changed before."""
    changes: list[Put | Delete] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """Descriptions of the changes."""
    check: list[str] = field(default_factory=list)
    """Things that the operator should check."""


Logs = Mapping[tuple[TopicId, int], Mapping[int, LogReport]]
"""Logs by partition and node."""


def plan(
    entries: Iterable[StoreEntry],
    reports: Iterable[NodeReport],
    given_up: Iterable[int],
    recovery_id: str,
) -> RecoveryPlan:
    """Plans the changes to the store as it is."""
    by_node = {report.node_id: report for report in reports}
    return _Planning(
        {entry.key: entry.value for entry in entries}, by_node, set(given_up), recovery_id
    ).plan()


class _Planning:
    """One plan while it is made."""

    def __init__(
        self,
        store: dict[str, bytes],
        reports: Mapping[int, NodeReport],
        given_up: set[int],
        recovery_id: str,
    ) -> None:
        self._store = store
        self._reports = reports
        self._given_up = given_up
        self._recovery_id = recovery_id
        self._wanted = dict(store)
        known = [report.known for report in reports.values() if report.known is not None]
        recovered = store.get(store_keys.RECOVERED)
        self._recovered = store_keys.decode(RecoveredRecord, recovered) if recovered else None
        of_now = self._recovered.id if self._recovered else ""
        # From the history that the store belongs to, or else from any.
        self._known = max(
            known, key=lambda one: (one.recovered == of_now, one.revision), default=None
        )
        self._all_known = known
        logs: dict[tuple[TopicId, int], dict[int, LogReport]] = {}
        for node_id, report in reports.items():
            for one in report.logs:
                logs.setdefault((parse_topic_id(one.topic_id), one.index), {})[node_id] = one
        self._logs: Logs = logs
        self._plan = RecoveryPlan([])

    def plan(self) -> RecoveryPlan:
        plan = self._plan
        self._take_known_keys()
        self._find_topics_in_logs()
        plan.missing = sorted(self._nodes() - self._reports.keys() - self._given_up)
        if plan.missing:
            return plan
        self._set_replicas()
        self._raise_producer_ids()
        self._report_unknowns()
        self._settle()
        return plan

    # -- topics -----------------------------------------------------------------------------

    def _take_known_keys(self) -> None:
        """Takes over the newest report's keys: they win over the store's."""
        known = self._known
        if known is None:
            return
        self._drop_deleted_topics(known)
        for key, kept in known.entries.items():
            value = bytes(kept.value)
            self._wanted[key] = self._with_secrets(key, value)
        for key in self._store:
            if key.startswith(TABLES) and key not in known.entries:
                secrets = self._with_secrets(key, NO_CONFIGS)
                if secrets != NO_CONFIGS:
                    self._wanted[key] = secrets
                else:
                    del self._wanted[key]

    def _drop_deleted_topics(self, known: KnownMetadata) -> None:
        """Deletes topics of the store that the newest report does not have."""
        topics = known.topics()
        ids = {record.id for record in topics.values()}
        for key in [key for key in self._store if key.startswith(store_keys.TOPICS)]:
            name = key.removeprefix(store_keys.TOPICS)
            record = store_keys.decode(TopicRecord, self._store[key])
            if record.id in ids:
                continue
            topic_id = parse_topic_id(record.id)
            marker = known.entries.get(store_keys.deleted_key(topic_id))
            has_logs = any(of == topic_id for of, _ in self._logs)
            if marker is None and has_logs and name not in topics:
                self._plan.check.append(
                    f"topic {name} ({record.id}) is in the metadata, and no node knows it; it "
                    "is kept, because some nodes have its logs"
                )
                continue
            del self._wanted[key]
            for state in [
                k for k in self._wanted if k.startswith(store_keys.partitions_prefix(topic_id))
            ]:
                del self._wanted[state]
            replicas = tuple(sorted({n for state in record.partitions for n in state.replicas}))
            deleted = DeletedRecord(name, len(record.partitions), replicas)
            self._wanted[store_keys.deleted_key(topic_id)] = (
                bytes(marker.value) if marker is not None else store_keys.encode(deleted)
            )
            self._plan.done.append(f"topic {name} ({record.id}) was deleted, and is removed again")

    def _with_secrets(self, key: str, value: bytes) -> bytes:
        """Adds the store's passwords to known configs: they are persisted nowhere else."""
        if not key.startswith(CONFIGS) or key not in self._store:
            return value
        present = store_keys.decode(ConfigsRecord, self._store[key]).values
        secret = {name: text for name, text in present.items() if is_secret(name)}
        values = store_keys.decode(ConfigsRecord, value).values
        return store_keys.encode(ConfigsRecord(values=values | secret)) if secret else value

    def _find_topics_in_logs(self) -> None:
        """Adds topics that are known only from logs, if no node has persisted metadata."""
        present = {one.id: name for name, one in self._topics().items()}
        deleted = {
            key.removeprefix(store_keys.DELETED)
            for key in self._wanted
            if key.startswith(store_keys.DELETED)
        }
        found: dict[str, dict[int, dict[int, LogReport]]] = {}
        for (topic_id, index), by_node in self._logs.items():
            text = show_topic_id(topic_id)
            if text not in present and text not in deleted:
                found.setdefault(text, {})[index] = dict(by_node)
        for text, partitions in sorted(found.items()):
            name = next(iter(next(iter(partitions.values())).values())).name
            if self._known is not None or name in self._topics():
                self._plan.check.append(
                    f"logs of unknown topic {name} ({text}) exist: left unchanged"
                )
                continue
            every = sorted({node for by_node in partitions.values() for node in by_node})
            initial = tuple(
                PartitionRecord(
                    replicas=tuple(sorted(partitions.get(index, {}))) or tuple(every),
                    leader=store_keys.NO_LEADER,
                    isr=(),
                )
                for index in range(max(partitions) + 1)
            )
            self._wanted[store_keys.topic_key(name)] = store_keys.encode(
                TopicRecord(id=text, partitions=initial)
            )
            self._plan.check.append(f"the configs of {name} are not known: it gets the defaults")

    def _topics(self) -> dict[str, TopicRecord]:
        return {
            key.removeprefix(store_keys.TOPICS): store_keys.decode(TopicRecord, value)
            for key, value in self._wanted.items()
            if key.startswith(store_keys.TOPICS)
        }

    def _nodes(self) -> set[int]:
        """Nodes that may have a replica."""
        return {
            node
            for record in self._topics().values()
            for index in range(len(record.partitions))
            for node in self._state(record, index).replicas
        }

    def _state(self, record: TopicRecord, index: int) -> PartitionRecord:
        value = self._wanted.get(store_keys.partition_key(parse_topic_id(record.id), index))
        return store_keys.decode(PartitionRecord, value) if value else record.partitions[index]

    # -- partitions -------------------------------------------------------------------------

    def _set_replicas(self) -> None:
        """Sets leaders and ISRs by the logs."""
        for name, record in sorted(self._topics().items()):
            topic_id = parse_topic_id(record.id)
            for index in range(len(record.partitions)):
                logs = self._logs.get((topic_id, index), {})
                self._set_partition(name, record, index, logs)

    def _set_partition(
        self, name: str, topic: TopicRecord, index: int, logs: Mapping[int, LogReport]
    ) -> None:
        key = store_keys.partition_key(parse_topic_id(topic.id), index)
        state = self._state(topic, index)
        stored = self._store.get(key)
        before = store_keys.decode(PartitionRecord, stored) if stored else state
        held = {node: one for node, one in logs.items() if node in state.replicas}
        if not held:
            self._plan.check.append(f"{name}-{index} has no log on any node")
            return
        best = max(one.rank for one in held.values())
        in_sync = tuple(node for node in state.replicas if node in held and held[node].rank == best)
        leader = state.leader if state.leader in in_sync else in_sync[0]
        epoch = max(
            *(one.latest_epoch for one in logs.values()), state.leader_epoch, before.leader_epoch
        )
        for known in self._all_known:
            kept = known.entries.get(key)
            if kept is not None:
                epoch = max(
                    epoch, store_keys.decode(PartitionRecord, bytes(kept.value)).leader_epoch
                )
        after = replace(
            state,
            leader=leader,
            isr=in_sync,
            elr=(),
            last_known_elr=(),
            leader_epoch=epoch + 1,
            partition_epoch=max(state.partition_epoch, before.partition_epoch) + 1,
        )
        self._wanted[key] = store_keys.encode(reconciled(after))
        behind = [node for node in state.replicas if node not in in_sync]
        self._plan.done.append(
            f"{name}-{index}: leader {leader} in epoch {epoch + 1}, in sync "
            f"{', '.join(map(str, in_sync))}, up to offset {best[1]}"
            + (f"; {', '.join(map(str, behind))} will catch up" if behind else "")
        )
        absent = [node for node in behind if node in self._given_up and node not in self._reports]
        if absent:
            self._plan.check.append(
                f"{name}-{index}: records that only node {absent[0]} had are lost, if any"
            )

    # -- other keys -------------------------------------------------------------------------

    def _raise_producer_ids(self) -> None:
        value = self._store.get(store_keys.PRODUCER_IDS)
        present = store_keys.decode(ProducerIdsRecord, value).next if value else 0
        wanted = max([present, *(known.next_producer_id for known in self._all_known)])
        is_sure = bool(self._all_known) and not (self._nodes() - self._reports.keys())
        if len(self._all_known) < len(self._reports) or not is_sure:
            wanted += SPARE_PRODUCER_IDS
        if wanted > present:
            self._wanted[store_keys.PRODUCER_IDS] = store_keys.encode(
                ProducerIdsRecord(next=wanted)
            )
            self._plan.done.append(f"producer ids continue from {wanted}")

    def _report_unknowns(self) -> None:
        check = self._plan.check
        if any(key.startswith(store_keys.USERS) for key in self._store) or self._known is not None:
            check.append(
                "users, their passwords and access keys, and configs that are passwords are as in "
                "the metadata store: they are persisted nowhere else"
            )

    def _settle(self) -> None:
        """Collects the changes, with the marker of the new history."""
        revision = max([0, *(known.revision for known in self._all_known)])
        if self._recovered is not None:
            revision = max(revision, self._recovered.revision)
        if store_keys.CLUSTER_ID not in self._wanted:
            cluster_id = next(iter(self._reports.values())).cluster_id
            self._wanted[store_keys.CLUSTER_ID] = store_keys.encode(ClusterRecord(cluster_id))
            self._plan.done.append(f"the metadata belongs to cluster {cluster_id}")
        self._wanted[store_keys.RECOVERED] = store_keys.encode(
            RecoveredRecord(self._recovery_id, revision)
        )
        changes = self._plan.changes
        for key, value in sorted(self._wanted.items()):
            if self._store.get(key) != value:
                changes.append(Put(key, value))
                if key.startswith(store_keys.TOPICS) and key not in self._store:
                    name = key.removeprefix(store_keys.TOPICS)
                    self._plan.done.insert(0, f"topic {name} is created again")
        changes += [Delete(key) for key in sorted(self._store) if key not in self._wanted]
