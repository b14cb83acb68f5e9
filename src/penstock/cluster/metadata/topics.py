"""Creation, growth and deletion of topics.

Owns: the rules for a new topic, in Kafka's words, and the three commands. Each is one
compare-and-swap of `/topics/<name>`; planning is pure, so a validate-only request runs the same
code. Invariants: a topic id is never used twice; deleting moves the topic to `/deleted/<id>` in the
same transaction, so that no crash loses track of data on disk.
Elsewhere: configs of existing topics (`config_changes`), placement of replicas (`placement`), and
the data of deleted topics (`partitions` removes it, `topic_deletion` ends the record).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NO_TOPIC_ID, TopicId, parse_topic_id, show_topic_id
from penstock.base.ports import Delete, Put, Random, Store, StoreEntry
from penstock.cluster.configs.effective_configs import (
    BrokerConfigs,
    InvalidConfig,
    Scope,
    require_key,
    validate,
)
from penstock.cluster.controller import topic_deletion
from penstock.cluster.controller.placement import initial_record, open_brokers, place
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.store_keys import DeletedRecord, PartitionRecord, TopicRecord

NAME_LENGTH_MAX = 249
PARTITIONS_PER_REQUEST_MAX = 2_000
"""Partitions that one request may create, over all its topics."""
PARTITIONS_PER_TOPIC_MAX = 10_000
RESERVED_NAMES = frozenset({"__cluster_metadata"})
USE_DEFAULT = -1

_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
# Base64 texts that begin with a dash look like a command-line option; Kafka avoids them too.
_TOPIC_ID_TRIES = 20


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A client's request; -1 means the broker's default."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """(partition, replicas), instead of counts."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that may be created; nothing is stored yet."""

    name: str
    id: TopicId
    record: TopicRecord

    @property
    def replication_factor(self) -> int:
        return len(self.record.partitions[0].replicas)


def check_name(name: str) -> None:
    """Raises Refused(INVALID_TOPIC_EXCEPTION) for a name that Kafka would refuse."""
    wrong = _wrong_name(name)
    if wrong is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {wrong}")


def _wrong_name(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return (
            f"the length of '{name[:NAME_LENGTH_MAX]}...' is longer than the max allowed "
            f"length {NAME_LENGTH_MAX}"
        )
    if _ILLEGAL.search(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def check_collision(name: str, others: Mapping[str, object]) -> None:
    """Refuses names that differ only in '.' and '_', as Kafka does: they would share metrics."""
    if "." not in name and "_" not in name:
        return
    unified = name.replace(".", "_")
    for other in others:
        if other != name and len(other) == len(name) and other.replace(".", "_") == unified:
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )


def new_topic_id(random: Random) -> TopicId:
    for _ in range(_TOPIC_ID_TRIES):
        topic_id = TopicId(random.random_bytes(16))
        # Ids that are nearly zero are reserved in Kafka.
        if topic_id[:15] != NO_TOPIC_ID[:15] and not show_topic_id(topic_id).startswith("-"):
            return topic_id
    raise AssertionError("the random source is broken")


def plan_topic(new: NewTopic, image: Image, broker: BrokerConfigs, random: Random) -> TopicPlan:
    """Plans a new topic without storing it; raises Refused with Kafka's codes."""
    check_name(new.name)
    if new.name in RESERVED_NAMES:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {new.name} is prohibited."
        )
    check_collision(new.name, image.topics)
    if new.name in image.topics:
        raise already_exists(new.name)
    configs = check_configs(new.configs)
    try:
        require_key(configs, broker)
    except InvalidConfig as wrong:
        raise Refused(ErrorCode.INVALID_CONFIG, str(wrong)) from wrong
    partitions = _assigned(new, image) if new.assignments else _placed(new, image, broker, random)
    topic_id = new_topic_id(random)
    record = TopicRecord(id=show_topic_id(topic_id), partitions=partitions, configs=configs)
    return TopicPlan(new.name, topic_id, record)


def check_configs(values: Mapping[str, str | None]) -> dict[str, str]:
    missing = sorted(name for name, value in values.items() if value is None)
    if missing:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(missing)}",
        )
    configs = {name: value for name, value in sorted(values.items()) if value is not None}
    try:
        validate(Scope.TOPIC, configs)
    except InvalidConfig as wrong:
        raise Refused(ErrorCode.INVALID_CONFIG, str(wrong)) from wrong
    return configs


def already_exists(name: str) -> Refused:
    return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _placed(
    new: NewTopic, image: Image, broker: BrokerConfigs, random: Random
) -> tuple[PartitionRecord, ...]:
    if new.replication_factor < USE_DEFAULT or new.replication_factor == 0:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if new.partitions < USE_DEFAULT or new.partitions == 0:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    count = new.partitions
    if count == USE_DEFAULT:
        count = broker.integer("num.partitions")
    check_count(count)
    replication_factor = new.replication_factor
    if replication_factor == USE_DEFAULT:
        replication_factor = broker.integer("default.replication.factor")
    return place(open_brokers(image), count, replication_factor, start=random_start(random))


def check_count(count: int) -> None:
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise Refused(
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request: "
            f"{count}, at most {PARTITIONS_PER_REQUEST_MAX} are allowed.",
        )


def random_start(random: Random) -> int:
    """Random first broker of a topic, so that first partitions spread over the brokers."""
    return int.from_bytes(random.random_bytes(4), "big")


def _assigned(new: NewTopic, image: Image) -> tuple[PartitionRecord, ...]:
    if new.replication_factor != USE_DEFAULT:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        )
    if new.partitions != USE_DEFAULT:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    check_count(len(new.assignments))
    by_index: dict[int, PartitionRecord] = {}
    factor: int | None = None
    for index, replicas in new.assignments:
        if index in by_index:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        by_index[index] = assign(replicas, image, index, factor)
        factor = len(replicas)
    if sorted(by_index) != list(range(len(by_index))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return tuple(by_index[index] for index in range(len(by_index)))


def assign(
    replicas: Sequence[int], image: Image, index: int, factor: int | None
) -> PartitionRecord:
    """Places a partition on the brokers of a request; raises INVALID_REPLICA_ASSIGNMENT."""

    def refuse(reason: str) -> Refused:
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

    if not replicas:
        raise refuse("The manual partition assignment includes an empty replica list.")
    for node in sorted(replicas):
        if node not in image.brokers:
            raise refuse(
                f"The manual partition assignment includes broker {node}, but no such broker is "
                "registered."
            )
        if replicas.count(node) > 1:
            raise refuse(
                f"The manual partition assignment includes the broker {node} more than once."
            )
    if factor is not None and len(replicas) != factor:
        raise refuse(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{factor} replica(s)."
        )
    live = [node for node in replicas if not image.brokers[node].is_draining]
    if not live:
        raise refuse(
            f"All brokers specified in the manual partition assignment for partition {index} are "
            "fenced or in controlled shutdown."
        )
    return initial_record(replicas, live)


async def create_topic(store: Store, plan: TopicPlan) -> int:
    """Stores a planned topic; returns the revision at which it exists."""

    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        if entry is None:
            return [Put(store_keys.topic_key(plan.name), store_keys.encode(plan.record))]
        if store_keys.decode(TopicRecord, entry.value).id == plan.record.id:
            return []  # An earlier attempt with an unknown result; changed by another node since.
        raise already_exists(plan.name)

    return await compare_and_swap.swap(store, [store_keys.topic_key(plan.name)], decide)


async def delete_topic(store: Store, name: str, topic_id: TopicId | None = None) -> int:
    """Deletes the topic (only the one with `topic_id`, if given); its data is removed later."""
    moved = await topic_deletion.read_states(store, name)

    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        if entry is None:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if topic_id is None
                else ErrorCode.UNKNOWN_TOPIC_ID
            )
        record = store_keys.decode(TopicRecord, entry.value)
        present = parse_topic_id(record.id)
        if topic_id is not None and present != topic_id:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        states = [
            moved.get((record.id, index), initial)
            for index, initial in enumerate(record.partitions)
        ]
        deleted = DeletedRecord(
            name=name, partitions=len(states), replicas=topic_deletion.replicas_of(states)
        )
        return [
            Delete(store_keys.topic_key(name)),
            Put(store_keys.deleted_key(present), store_keys.encode(deleted)),
        ]

    return await compare_and_swap.swap(store, [store_keys.topic_key(name)], decide)


async def create_partitions(
    store: Store,
    image: Image,
    random: Random,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    *,
    validate_only: bool = False,
) -> int:
    """Grows a topic to `count` partitions."""
    start = random_start(random)

    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        if entry is None:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        record = store_keys.decode(TopicRecord, entry.value)
        added = _more_partitions(record, image, name, count, assignments, start)
        if validate_only:
            return []
        grown = TopicRecord(
            id=record.id, partitions=record.partitions + added, configs=record.configs
        )
        return [Put(store_keys.topic_key(name), store_keys.encode(grown))]

    return await compare_and_swap.swap(store, [store_keys.topic_key(name)], decide)


def _more_partitions(
    record: TopicRecord,
    image: Image,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    start: int,
) -> tuple[PartitionRecord, ...]:
    present = len(record.partitions)
    if count == present:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if count < present:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {present} partition(s); {count} would not be an "
            "increase.",
        )
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"A topic has at most {PARTITIONS_PER_TOPIC_MAX} partitions.",
        )
    additional = count - present
    check_count(additional)
    factor = len(record.partitions[0].replicas)
    if assignments is None:
        return place(open_brokers(image), additional, factor, first=present, start=start)
    if len(assignments) != additional:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(assignments)} assignment(s) were specified.",
        )
    return tuple(
        assign(replicas, image, present + offset, factor)
        for offset, replicas in enumerate(assignments)
    )
