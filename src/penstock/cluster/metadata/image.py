"""Image: this node's knowledge of the cluster at one revision of the store.

Owns: the immutable `Image`, and applying changes to make the next one.
Invariants: an image never changes; `topics` and `topics_by_id` hold the same objects; a partition's
state is its own key if that exists and belongs to the topic's present id, else the initial state
in the topic's record. Applying the changes of every revision in order gives the same image as
loading the range at the last of them, because writers keep three rules: an id is never reused, a
topic never shrinks, and a state is written only for a partition that exists.
Elsewhere: getting the changes (`metadata_watcher`), making them (`topics`, `config_changes`).

Path of an entity's quotas in the store: `user/alice/client-id/<default>`. Names may contain any
character, so they are percent-encoded; so no name equals the default's path.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote, unquote

from penstock.base.ids import NodeId, TopicId, parse_topic_id
from penstock.base.ports import Change, StoreEntry
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import (
    AclsRecord,
    BrokerRecord,
    ClusterRecord,
    ConfigsRecord,
    ControllerRecord,
    DeletedRecord,
    FanoutRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaRecord,
    ReachRecord,
    RecoveredRecord,
    TopicRecord,
    UserRecord,
)
from penstock.security.acls import AclEntry, Resource
from penstock.security.quotas import DEFAULT, Default, Entity, EntityName, EntityType

DEFAULT_PATH = "<default>"


def path_of(entity: Entity) -> str:
    return "/".join(
        f"{kind}/{DEFAULT_PATH if isinstance(name, Default) else quote(name, safe='')}"
        for kind, name in entity.parts()
    )


def entity_at(path: str) -> Entity:
    """Parses a path made by `path_of`."""
    steps = iter(path.split("/"))
    found: dict[str, EntityName] = {}
    for kind, name in zip(steps, steps, strict=True):
        found[kind] = DEFAULT if name == DEFAULT_PATH else unquote(name)
    user, client_id, ip = (found.get(kind) for kind in EntityType)
    return Entity(user, client_id, ip)


NO_NODE = NodeId(-1)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """State of a partition, and the revision that its next change must expect (0: no key yet)."""

    record: PartitionRecord
    revision: int


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: TopicId
    configs: Mapping[str, str]
    initial: tuple[PartitionRecord, ...]
    changed: Mapping[int, PartitionState]
    """Partitions with a key of their own, by index."""
    partitions: tuple[PartitionRecord, ...]
    """Present states, by index."""
    revision: int

    def state(self, index: int) -> PartitionState:
        return self.changed.get(index) or PartitionState(self.initial[index], 0)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def is_hidden(self) -> bool:
        """True for topics of the broker or of Penstock's tools: listed only on request."""
        return self.name.startswith(HIDDEN)


HIDDEN = "__"
"""Prefix of hidden topics' names."""
INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__schemas", "__audit"}
)


@dataclass(frozen=True, slots=True)
class Image:
    """The cluster at `revision`."""

    revision: int
    cluster_id: str
    brokers: Mapping[int, BrokerRecord]
    """Live brokers, by id, in the order of their ids."""
    broker_revisions: Mapping[int, int]
    """Revision of each broker's registration: guards decisions about the broker."""
    controller: ControllerRecord | None
    controller_revision: int
    """Revision of the controller's key; 0 without a controller."""
    topics: Mapping[str, TopicImage]
    topics_by_id: Mapping[TopicId, TopicImage]
    deleted: Mapping[TopicId, DeletedRecord]
    cluster_configs: Mapping[str, str]
    broker_configs: Mapping[int, Mapping[str, str]]
    group_configs: Mapping[str, Mapping[str, str]]
    fanouts: Mapping[str, FanoutRecord] = field(default_factory=dict)
    """SNS topics, by name."""
    acls: Mapping[Resource, tuple[AclEntry, ...]] = field(default_factory=dict)
    users: Mapping[str, UserRecord] = field(default_factory=dict)
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    reach: Mapping[int, ReachRecord] = field(default_factory=dict)
    """Unreachable nodes by the broker that reports them; see `peer_reachability`."""
    next_producer_id: int = 0
    recovered: RecoveredRecord | None = None
    recovering: Mapping[int, bool] = field(default_factory=dict)
    """Nodes that have reported to a recovery that is not complete."""

    @property
    def controller_id(self) -> NodeId:
        """Node that clients send administrative requests to; any broker can answer them."""
        if self.controller is not None and self.controller.node_id in self.brokers:
            return NodeId(self.controller.node_id)
        return NodeId(next(iter(self.brokers), NO_NODE))

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def partition(self, name: str, index: int) -> PartitionRecord | None:
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def apply(self, changes: Iterable[Change]) -> "Image":
        """Returns the image after one revision's changes, or after several, in order."""
        draft = _Draft(self)
        for change in changes:
            draft.apply(change)
        return draft.finish()


EMPTY = Image(0, "", {}, {}, None, 0, {}, {}, {}, {}, {}, {})


def load(revision: int, entries: Iterable[StoreEntry]) -> Image:
    """Returns the image of a whole range read at `revision`."""
    draft = _Draft(replace(EMPTY, revision=revision))
    for entry in entries:
        draft.apply(Change(entry.key, entry.value, entry.revision))
    return replace(draft.finish(), revision=revision)


class _Draft:
    """Mutable copy of an image; copies a table only to change it."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.revision = image.revision
        self.topics: dict[str, TopicImage] | None = None
        self.by_id: dict[TopicId, TopicImage] = {}
        self.fields: dict[str, object] = {}
        # Partition states wait until every topic of the revision is known.
        self.states: dict[TopicId, dict[int, PartitionState | None]] = {}

    def apply(self, change: Change) -> None:
        self.revision = max(self.revision, change.revision)
        key, value = change.key, change.value
        if key.startswith(store_keys.PARTITIONS):
            self._partition(key.removeprefix(store_keys.PARTITIONS), value, change.revision)
        elif key.startswith(store_keys.TOPICS):
            self._topic(key.removeprefix(store_keys.TOPICS), value, change.revision)
        elif key.startswith(store_keys.BROKERS):
            self._broker(int(key.removeprefix(store_keys.BROKERS)), value, change.revision)
        elif key.startswith(store_keys.REACH):
            node_id = int(key.removeprefix(store_keys.REACH))
            self._set("reach", node_id, value and store_keys.decode(ReachRecord, value))
        elif key.startswith(store_keys.DELETED):
            topic_id = parse_topic_id(key.removeprefix(store_keys.DELETED))
            self._set("deleted", topic_id, value and store_keys.decode(DeletedRecord, value))
        elif key.startswith(store_keys.BROKER_CONFIGS):
            node_id = int(key.removeprefix(store_keys.BROKER_CONFIGS))
            self._set("broker_configs", node_id, value and _configs(value))
        elif key.startswith(store_keys.GROUP_CONFIGS):
            group = key.removeprefix(store_keys.GROUP_CONFIGS)
            self._set("group_configs", group, value and _configs(value))
        elif key.startswith(store_keys.FANOUTS):
            name = key.removeprefix(store_keys.FANOUTS)
            self._set("fanouts", name, value and store_keys.decode(FanoutRecord, value))
        elif key.startswith(store_keys.ACLS):
            resource = acl_resource(key.removeprefix(store_keys.ACLS))
            self._set("acls", resource, value and _acls(value))
        elif key.startswith(store_keys.USERS):
            name = key.removeprefix(store_keys.USERS)
            self._set("users", name, value and store_keys.decode(UserRecord, value))
        elif key.startswith(store_keys.QUOTAS):
            entity = entity_at(key.removeprefix(store_keys.QUOTAS))
            self._set("quotas", entity, value and store_keys.decode(QuotaRecord, value).values)
        elif key == store_keys.CLUSTER_CONFIGS:
            self.fields["cluster_configs"] = _configs(value) if value else {}
        elif key == store_keys.CONTROLLER:
            self.fields["controller"] = (
                store_keys.decode(ControllerRecord, value) if value else None
            )
            self.fields["controller_revision"] = change.revision if value else 0
        elif key == store_keys.PRODUCER_IDS:
            self.fields["next_producer_id"] = (
                store_keys.decode(ProducerIdsRecord, value).next if value else 0
            )
        elif key.startswith(store_keys.RECOVERY):
            node_id = int(key.removeprefix(store_keys.RECOVERY).partition("/")[0])
            self._set("recovering", node_id, value and True)
        elif key == store_keys.RECOVERED:
            self.fields["recovered"] = store_keys.decode(RecoveredRecord, value) if value else None
        elif key == store_keys.CLUSTER_ID and value:
            self.fields["cluster_id"] = store_keys.decode(ClusterRecord, value).cluster_id

    def finish(self) -> Image:
        for topic_id, states in self.states.items():
            self._merge(topic_id, states)
        if self.topics is not None:
            self.fields["topics"] = self.topics
            self.fields["topics_by_id"] = self.by_id
        return replace(self.image, revision=self.revision, **self.fields)  # type: ignore[arg-type]

    def _set(self, field: str, key: object, value: object | None) -> None:
        table = self.fields.get(field)
        if table is None:
            table = self.fields[field] = dict(getattr(self.image, field))
        assert isinstance(table, dict)
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

    def _broker(self, node_id: int, value: bytes | None, revision: int) -> None:
        self._set("brokers", node_id, value and store_keys.decode(BrokerRecord, value))
        self._set("broker_revisions", node_id, revision if value else None)
        brokers = self.fields["brokers"]
        assert isinstance(brokers, dict)
        self.fields["brokers"] = dict(sorted(brokers.items()))

    def _topic(self, name: str, value: bytes | None, revision: int) -> None:
        topics = self._topics()
        old = topics.pop(name, None)
        if old is not None:
            del self.by_id[old.id]
        if value is None:
            return
        record = store_keys.decode(TopicRecord, value)
        topic_id = parse_topic_id(record.id)
        # A new id under an old name is another topic: it inherits no state.
        changed = old.changed if old is not None and old.id == topic_id else {}
        self._put(_assemble(name, topic_id, record.configs, record.partitions, changed, revision))

    def _partition(self, path: str, value: bytes | None, revision: int) -> None:
        text, _, index = path.partition("/")
        state = (
            PartitionState(store_keys.decode(PartitionRecord, value), revision) if value else None
        )
        self.states.setdefault(parse_topic_id(text), {})[int(index)] = state

    def _merge(self, topic_id: TopicId, states: Mapping[int, PartitionState | None]) -> None:
        self._topics()
        topic = self.by_id.get(topic_id)
        if topic is None:
            return
        changed = dict(topic.changed)
        for index, state in states.items():
            if state is None:
                changed.pop(index, None)
            elif index < len(topic.initial):
                changed[index] = state
        self._put(
            _assemble(topic.name, topic.id, topic.configs, topic.initial, changed, topic.revision)
        )

    def _topics(self) -> dict[str, TopicImage]:
        if self.topics is None:
            self.topics = dict(self.image.topics)
            self.by_id = dict(self.image.topics_by_id)
        return self.topics

    def _put(self, topic: TopicImage) -> None:
        self._topics()[topic.name] = topic
        self.by_id[topic.id] = topic


def _assemble(
    name: str,
    topic_id: TopicId,
    configs: Mapping[str, str],
    initial: tuple[PartitionRecord, ...],
    changed: Mapping[int, PartitionState],
    revision: int,
) -> TopicImage:
    partitions = initial
    if changed:
        partitions = tuple(
            changed[index].record if index in changed else record
            for index, record in enumerate(initial)
        )
    return TopicImage(name, topic_id, configs, initial, changed, partitions, revision)


def _configs(value: bytes) -> Mapping[str, str]:
    return store_keys.decode(ConfigsRecord, value).values


def acl_resource(path: str) -> Resource:
    """Resource of the ACLs under `/acls/<path>`."""
    kind, pattern, name = path.split("/", 2)
    return Resource(int(kind), name, int(pattern))


def _acls(value: bytes) -> tuple[AclEntry, ...]:
    return tuple(
        AclEntry(entry.principal, entry.host, entry.operation, entry.permission)
        for entry in store_keys.decode(AclsRecord, value).entries
    )
