"""Keys and records of the metadata store (etcd, or the embedded one)."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec
import pytest

from penstock.base.ids import TopicId
from penstock.cluster.metadata import store_keys
from tests.golden.book import Book, Sample
from tests.golden.filling import full, minimal
from tests.golden.structs import subclasses

RECORDS: Final[dict[str, type[Any]]] = {
    "cluster": store_keys.ClusterRecord,
    "controller": store_keys.ControllerRecord,
    "broker": store_keys.BrokerRecord,
    "reach": store_keys.ReachRecord,
    "life": store_keys.LifeRecord,
    "partition": store_keys.PartitionRecord,
    "topic": store_keys.TopicRecord,
    "deleted topic": store_keys.DeletedRecord,
    "configs": store_keys.ConfigsRecord,
    "acl": store_keys.AclRecord,
    "acls": store_keys.AclsRecord,
    "scram": store_keys.ScramRecord,
    "access key": store_keys.AccessKeyRecord,
    "user": store_keys.UserRecord,
    "quota": store_keys.QuotaRecord,
    "secret": store_keys.SecretRecord,
    "producer ids": store_keys.ProducerIdsRecord,
    "recovered": store_keys.RecoveredRecord,
    "move": store_keys.MoveRecord,
    "subscription": store_keys.SubscriptionRecord,
    "sns topic": store_keys.FanoutRecord,
}
TOPIC_ID: Final = TopicId(bytes(range(16)))
KEYS: Final = {
    "all": store_keys.ALL,
    "cluster id": store_keys.CLUSTER_ID,
    "controller": store_keys.CONTROLLER,
    "brokers": store_keys.BROKERS,
    "reach": store_keys.REACH,
    "lives": store_keys.LIVES,
    "topics": store_keys.TOPICS,
    "partitions": store_keys.PARTITIONS,
    "deleted": store_keys.DELETED,
    "cluster configs": store_keys.CLUSTER_CONFIGS,
    "broker configs": store_keys.BROKER_CONFIGS,
    "group configs": store_keys.GROUP_CONFIGS,
    "acls": store_keys.ACLS,
    "users": store_keys.USERS,
    "quotas": store_keys.QUOTAS,
    "cluster secret": store_keys.CLUSTER_SECRET,
    "producer ids": store_keys.PRODUCER_IDS,
    "moves": store_keys.MOVES,
    "recovered": store_keys.RECOVERED,
    "recovery": store_keys.RECOVERY,
    "sns topics": store_keys.FANOUTS,
    "one topic": store_keys.topic_key("orders"),
    "one partition": store_keys.partition_key(TOPIC_ID, 12),
    "partitions of a topic": store_keys.partitions_prefix(TOPIC_ID),
    "one deleted topic": store_keys.deleted_key(TOPIC_ID),
    "one broker": store_keys.broker_key(7),
    "reach of one broker": store_keys.reach_key(7),
    "life of one node": store_keys.life_key(7),
    "configs of one broker": store_keys.broker_configs_key(7),
    "configs of one group": store_keys.group_configs_key("sales"),
    "acls of one resource": store_keys.acls_key(2, 3, "orders"),
    "one user": store_keys.user_key("ann"),
}
OF_FUNCTIONS: Final = 11


def _samples() -> Iterator[Sample]:
    for name, kind in RECORDS.items():
        for size, record in (("full", full(kind)), ("minimal", minimal(kind))):
            data = store_keys.encode(record)
            yield Sample(f"record: {name} {size}", data, record, partial(store_keys.decode, kind))
    for name, key in KEYS.items():
        yield Sample(f"key: {name}", key.encode())


BOOK: Final = Book("metadata_store", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_bytes_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_sample_is_lost() -> None:
    BOOK.check_names()


def test_every_record_has_a_sample() -> None:
    base = next(one for one in store_keys.TopicRecord.__mro__[1:] if one is not msgspec.Struct)
    assert set(RECORDS.values()) == subclasses(base)


def test_every_key_has_a_sample() -> None:
    constants = {value for name, value in vars(store_keys).items() if _is_key(name, value)}
    assert constants <= set(KEYS.values())
    functions = [name for name in vars(store_keys) if name.endswith(("_key", "_prefix"))]
    assert len(functions) == OF_FUNCTIONS, f"give each its sample: {functions}"


def _is_key(name: str, value: object) -> bool:
    return name.isupper() and isinstance(value, str) and value.startswith("/")
