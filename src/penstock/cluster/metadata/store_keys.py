"""Keys of the metadata store, and their records.

Owns: every key's spelling and the JSON of its value.

    /cluster-id                  ClusterRecord     written once
    /controller                  ControllerRecord  lease; the node that places and elects
    /brokers/<id>                BrokerRecord      lease; a live broker
    /reach/<id>                  ReachRecord       lease; nodes that a broker cannot reach
    /lives/<id>                  LifeRecord        counts a node's processes; never removed
    /topics/<name>               TopicRecord       id, configs, partitions as created
    /partitions/<topic id>/<n>   PartitionRecord   a partition's state once it has changed
    /deleted/<topic id>          DeletedRecord     a topic whose data is still on some disk
    /configs/cluster             ConfigsRecord     dynamic broker configs for every broker
    /configs/brokers/<id>        ConfigsRecord     dynamic broker configs of one broker
    /configs/groups/<group>      ConfigsRecord     configs of one group
    /acls/<type>/<pattern>/<name> AclsRecord       permissions on these resources
    /users/<name>                UserRecord        password hashes and access keys
    /quotas/<type>/<name>[/...]  QuotaRecord       rate limits of an entity
    /cluster-secret              SecretRecord      authenticates nodes to each other; written once
    /producer-ids                ProducerIdsRecord the next free producer id
    /recovered                   RecoveredRecord   history that the store continues with
    /recovery/<node>/<n>         bytes             report of a node to a recovery under way
    /moves/<id>                  MoveRecord        a task that moves messages to another queue
    /sns/<name>                  FanoutRecord      an SNS topic and its subscribed queues

Invariants: every change is one compare-and-swap. Creating a topic of any size is one put: a
partition's initial state is in its topic's record and needs no key of its own (etcd takes 128
operations in a transaction). Leader and ISR changes are one put each, guarded by that key's
revision, and never touch the topic's record. Deleting a topic is one transaction of two operations
that removes the name and leaves `/deleted/<id>`. Partition keys of an id without a topic mean
nothing, and are removed with `/deleted/<id>`. Fields are added with defaults, never renamed or
removed.
"""

from typing import TypeAlias, TypeVar

import msgspec

from penstock.base.ids import TopicId, show_topic_id

ALL = "/"
CLUSTER_ID = "/cluster-id"
CONTROLLER = "/controller"
BROKERS = "/brokers/"
REACH = "/reach/"
LIVES = "/lives/"
TOPICS = "/topics/"
PARTITIONS = "/partitions/"
DELETED = "/deleted/"
CLUSTER_CONFIGS = "/configs/cluster"
BROKER_CONFIGS = "/configs/brokers/"
GROUP_CONFIGS = "/configs/groups/"
ACLS = "/acls/"
USERS = "/users/"
QUOTAS = "/quotas/"
CLUSTER_SECRET = "/cluster-secret"  # noqa: S105 - the key, not the secret
PRODUCER_IDS = "/producer-ids"
MOVES = "/moves/"
RECOVERED = "/recovered"
RECOVERY = "/recovery/"
FANOUTS = "/sns/"

NO_LEADER = -1


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all records. Unknown fields are ignored, so newer nodes' records can be read."""


class ClusterRecord(_Record, frozen=True):
    cluster_id: str


class ControllerRecord(_Record, frozen=True):
    node_id: int
    epoch: int = 0
    broker_epoch: int = -1
    """Broker epoch it was elected with: when that registration ends, so does the controller."""


EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104
"""Listen addresses that clients cannot connect to."""


Incarnation: TypeAlias = tuple[int, str, int]
"""Incarnation of a node: epoch, host and port of its registration."""


class BrokerRecord(_Record, frozen=True):
    """A live broker: its addresses, and the epoch that fences its earlier processes."""

    node_id: int
    host: str
    port: int
    epoch: int = 0
    rack: str | None = None
    http: str | None = None
    is_draining: bool = False
    """True during controlled shutdown: the broker is not elected."""
    directory_id: str = ""
    """Data directory that it serves: the same one means the same node, in another process."""
    pid: int = 0
    is_unclean: bool = False
    """True after a start without a clean-shutdown marker: unsynced records may be lost."""
    endpoints: dict[str, tuple[str, int]] = {}
    """Addresses by listener name; `host` and `port` are for other nodes."""

    @property
    def incarnation(self) -> Incarnation:
        return self.epoch, self.host, self.port

    def at(self, listener: str) -> tuple[str, int]:
        """Address for a client that came through a listener of this name."""
        return self.endpoints.get(listener) or (self.host, self.port)


class ReachRecord(_Record, frozen=True):
    """Nodes that a broker cannot reach. Absent while it reaches all."""

    broker_epoch: int
    """Broker epoch of the reporting process."""
    unreached: dict[int, int] = {}
    """Broker epoch of the process that does not answer, by node."""


class LifeRecord(_Record, frozen=True):
    """The last registered process of a node. Its data directory holds the same number, so a
    directory that was restored from an older copy is detected."""

    number: int
    directory_id: str = ""


class PartitionRecord(_Record, frozen=True):
    """Replicas and leader of a partition (KIP-966 for ELR, KIP-455 for reassignment)."""

    replicas: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0
    """Counts every change of this record; the leader epoch counts only changes of leader."""
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_recovering: bool = False
    """True while replicas have yet to follow an unclean election."""
    unclean_epoch: int = -1
    """Leader epoch that the last unclean election began: logs of older epochs may hold committed
    records that are lost since."""
    unreconciled: tuple[int, ...] = ()
    """Replicas that have not been in sync since the last unclean election: only they may hold such
    records. Older versions do not write it; then `is_recovering` alone says that there are some."""


class TopicRecord(_Record, frozen=True):
    id: str
    partitions: tuple[PartitionRecord, ...]
    configs: dict[str, str] = {}


class DeletedRecord(_Record, frozen=True):
    name: str
    partitions: int
    replicas: tuple[int, ...] = ()
    """Nodes with a replica when it was deleted."""
    confirmed: tuple[int, ...] = ()
    """Those of them that have removed their files, or will never return."""


class ConfigsRecord(_Record, frozen=True):
    values: dict[str, str] = {}


class AclRecord(_Record, frozen=True, array_like=True):
    """One entry of a list; operations and permissions by Kafka's numbers."""

    principal: str
    host: str
    operation: int
    permission: int


class AclsRecord(_Record, frozen=True):
    entries: tuple[AclRecord, ...] = ()


class ScramRecord(_Record, frozen=True):
    """Verifier of a password for one mechanism (`security.scram`)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class AccessKeyRecord(_Record, frozen=True):
    """A key for signatures, which need the secret in plain text (ADR 20)."""

    secret: str
    created_ms: int


class UserRecord(_Record, frozen=True):
    scram: dict[str, ScramRecord] = {}
    """Verifiers by mechanism."""
    access_keys: dict[str, AccessKeyRecord] = {}
    """Access keys by id."""


class QuotaRecord(_Record, frozen=True):
    values: dict[str, float] = {}
    """Limits by Kafka's quota names."""


class SecretRecord(_Record, frozen=True):
    secret: bytes


class ProducerIdsRecord(_Record, frozen=True):
    next: int


class RecoveredRecord(_Record, frozen=True):
    """A store recovered from what nodes had seen, up to a revision of the previous history."""

    id: str
    revision: int


class MoveRecord(_Record, frozen=True):
    """A task that moves messages between queues (StartMessageMoveTask of SQS)."""

    source: str
    started_ms: int
    owner: int
    """Node that runs the task."""
    principal: str
    host: str = "*"
    """Host of the request."""
    destination: str | None = None
    """None: each message returns to its source queue."""
    rate_max: int | None = None
    """Messages per second."""
    status: str = "RUNNING"
    moved: int = 0
    to_move: int = 0
    reason: str | None = None


class SubscriptionRecord(_Record, frozen=True):
    id: str
    queue: str
    attributes: dict[str, str] = {}


class FanoutRecord(_Record, frozen=True):
    """An SNS topic: each published message goes to every subscribed queue (CreateTopic of SNS)."""

    attributes: dict[str, str] = {}
    tags: dict[str, str] = {}
    subscriptions: tuple[SubscriptionRecord, ...] = ()


RecordT = TypeVar("RecordT", bound=_Record)
_encoder = msgspec.json.Encoder()
_decoders: dict[type[_Record], msgspec.json.Decoder[_Record]] = {}


def encode(record: _Record) -> bytes:
    return _encoder.encode(record)


def decode(kind: type[RecordT], value: bytes) -> RecordT:
    """Raises msgspec.ValidationError for a value that no version of Penstock wrote."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    record = decoder.decode(value)
    assert isinstance(record, kind)
    return record


def topic_key(name: str) -> str:
    return TOPICS + name


def partition_key(topic_id: TopicId, index: int) -> str:
    return f"{PARTITIONS}{show_topic_id(topic_id)}/{index:06d}"


def partitions_prefix(topic_id: TopicId) -> str:
    return f"{PARTITIONS}{show_topic_id(topic_id)}/"


def deleted_key(topic_id: TopicId) -> str:
    return DELETED + show_topic_id(topic_id)


def broker_key(node_id: int) -> str:
    return f"{BROKERS}{node_id}"


def reach_key(node_id: int) -> str:
    return f"{REACH}{node_id}"


def life_key(node_id: int) -> str:
    return f"{LIVES}{node_id}"


def broker_configs_key(node_id: int) -> str:
    return f"{BROKER_CONFIGS}{node_id}"


def group_configs_key(group: str) -> str:
    return GROUP_CONFIGS + group


def acls_key(resource_type: int, pattern: int, name: str) -> str:
    return f"{ACLS}{resource_type}/{pattern}/{name}"


def user_key(name: str) -> str:
    return USERS + name
