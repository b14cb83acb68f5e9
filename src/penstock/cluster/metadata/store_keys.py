"""The keys of the metadata store and the records under them.

Owns: every key's spelling and the JSON of its value.

    /cluster-id                  ClusterRecord     written once
    /controller                  ControllerRecord  lease; who may place and elect
    /brokers/<id>                BrokerRecord      lease; a broker that is up
    /reach/<id>                  ReachRecord       lease; whom a broker does not reach
    /lives/<id>                  LifeRecord        how often a node has lived; never removed
    /topics/<name>               TopicRecord       id, configs, partitions as they were born
    /partitions/<topic id>/<n>   PartitionRecord   a partition's state once it differs from birth
    /deleted/<topic id>          DeletedRecord     a topic whose data is still on some disk
    /configs/cluster             ConfigsRecord     dynamic broker configs for every broker
    /configs/brokers/<id>        ConfigsRecord     dynamic broker configs of one broker
    /configs/groups/<group>      ConfigsRecord     configs of one group
    /acls/<type>/<pattern>/<name> AclsRecord       who may do what with these resources
    /users/<name>                UserRecord        what is kept of passwords and access keys
    /quotas/<type>/<name>[/...]  QuotaRecord       how fast an entity may go on
    /cluster-secret              SecretRecord      by which nodes know each other; written once
    /producer-ids                ProducerIdsRecord the next free producer id
    /recovered                   RecoveredRecord   which history the store goes on with
    /recovery/<node>/<n>         bytes             what a node had to say to a recovery under way
    /moves/<id>                  MoveRecord        a task that moves messages to another queue
    /sns/<name>                  FanoutRecord      an SNS topic and the queues that subscribe to it

Invariants: every change is one compare-and-swap. Creating a topic of any size is one put, for a
partition's first state lies in its topic's record and needs no key of its own (etcd takes 128
operations in a transaction); leader and ISR changes are one put each, guarded by that key's
revision, and never touch the topic's record. Deleting is one transaction of two operations that
takes the name away and leaves `/deleted/<id>`; partition keys of an id that no topic has mean
nothing and go with `/deleted/<id>`. Fields are added with defaults, never renamed or removed.
"""

from typing import TypeVar

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
CLUSTER_SECRET = "/cluster-secret"  # noqa: S105 - where it is, not what it is
PRODUCER_IDS = "/producer-ids"
MOVES = "/moves/"
RECOVERED = "/recovered"
RECOVERY = "/recovery/"
FANOUTS = "/sns/"

NO_LEADER = -1


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Unknown fields are ignored, so that a newer node's records can be read."""


class ClusterRecord(_Record, frozen=True):
    cluster_id: str


class ControllerRecord(_Record, frozen=True):
    node_id: int
    epoch: int = 0
    broker_epoch: int = -1
    """Of the registration it was elected with: when that is gone, so is the controller."""


EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104
"""Addresses that say where to listen, and tell nobody where to connect to."""


class BrokerRecord(_Record, frozen=True):
    """A broker that is up: how to reach it, and the epoch that fences its past lives."""

    node_id: int
    host: str
    port: int
    epoch: int = 0
    rack: str | None = None
    http: str | None = None
    is_draining: bool = False
    """In controlled shutdown: leads nothing new."""
    directory_id: str = ""
    """Which data directory it serves: the same one is the same node in another life."""
    pid: int = 0
    is_unclean: bool = False
    """It came back without a clean-shutdown marker: what was not synced may be lost."""
    endpoints: dict[str, tuple[str, int]] = {}
    """Where it is reached by the name of a listener; `host` and `port` are for other nodes."""

    def at(self, listener: str) -> tuple[str, int]:
        """Where a client that came through a listener of this name reaches it."""
        return self.endpoints.get(listener) or (self.host, self.port)


class ReachRecord(_Record, frozen=True):
    """Whom a broker does not reach. There is none where it reaches everybody."""

    broker_epoch: int
    """Of the life that says so."""
    unreached: dict[int, int] = {}
    """By node: the epoch of the life that does not answer."""


class LifeRecord(_Record, frozen=True):
    """The last life of a node that registered. Its data directory holds the same number, so one
    that was put back from an older copy is found out."""

    number: int
    directory_id: str = ""


class PartitionRecord(_Record, frozen=True):
    """Who holds a partition and who leads it (KIP-966 for ELR, KIP-455 for reassignment)."""

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
    """Elected uncleanly and not yet whole again."""
    unclean_epoch: int = -1
    """The leader epoch that the last unclean election began: logs of older epochs may hold records
    that were committed and are lost since."""
    unreconciled: tuple[int, ...] = ()
    """The replicas that have not been in sync since the last unclean election: only they may hold
    such records. Older versions do not write it; then `is_recovering` alone says that there are
    some."""


class TopicRecord(_Record, frozen=True):
    id: str
    partitions: tuple[PartitionRecord, ...]
    configs: dict[str, str] = {}


class DeletedRecord(_Record, frozen=True):
    name: str
    partitions: int
    replicas: tuple[int, ...] = ()
    """The nodes that had a part of it when it was deleted."""
    confirmed: tuple[int, ...] = ()
    """Those of them that have removed their files, or will never come back."""


class ConfigsRecord(_Record, frozen=True):
    values: dict[str, str] = {}


class AclRecord(_Record, frozen=True, array_like=True):
    """One line of a list; operations and permissions by Kafka's numbers."""

    principal: str
    host: str
    operation: int
    permission: int


class AclsRecord(_Record, frozen=True):
    entries: tuple[AclRecord, ...] = ()


class ScramRecord(_Record, frozen=True):
    """What is kept of a password for one mechanism (`security.scram`)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class AccessKeyRecord(_Record, frozen=True):
    """A key for signatures, which need the secret as it is (ADR 20)."""

    secret: str
    created_ms: int


class UserRecord(_Record, frozen=True):
    scram: dict[str, ScramRecord] = {}
    """By the name of the mechanism."""
    access_keys: dict[str, AccessKeyRecord] = {}
    """By the key's id."""


class QuotaRecord(_Record, frozen=True):
    values: dict[str, float] = {}
    """By Kafka's names of quotas."""


class SecretRecord(_Record, frozen=True):
    secret: bytes


class ProducerIdsRecord(_Record, frozen=True):
    next: int


class RecoveredRecord(_Record, frozen=True):
    """The store was made anew of what nodes had seen, up to a revision of its history before."""

    id: str
    revision: int


class MoveRecord(_Record, frozen=True):
    """Messages of one queue on their way to another (StartMessageMoveTask of SQS)."""

    source: str
    started_ms: int
    owner: int
    """The node that does it."""
    principal: str
    host: str = "*"
    """From where it was asked for."""
    destination: str | None = None
    """None: where each message came from."""
    rate_max: int | None = None
    """Messages in a second."""
    status: str = "RUNNING"
    moved: int = 0
    to_move: int = 0
    reason: str | None = None


class SubscriptionRecord(_Record, frozen=True):
    id: str
    queue: str
    attributes: dict[str, str] = {}


class FanoutRecord(_Record, frozen=True):
    """What is published there goes to every queue that subscribes (CreateTopic of SNS)."""

    attributes: dict[str, str] = {}
    tags: dict[str, str] = {}
    subscriptions: tuple[SubscriptionRecord, ...] = ()


RecordT = TypeVar("RecordT", bound=_Record)
_encoder = msgspec.json.Encoder()
_decoders: dict[type[_Record], msgspec.json.Decoder[_Record]] = {}


def encode(record: _Record) -> bytes:
    return _encoder.encode(record)


def decode(kind: type[RecordT], value: bytes) -> RecordT:
    """Raises msgspec.ValidationError when the store holds what no version of us wrote."""
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
