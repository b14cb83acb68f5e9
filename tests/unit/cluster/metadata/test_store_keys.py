"""Keys are spelt one way, and records survive both older and newer writers."""

import msgspec
import pytest

from penstock.base.ids import TopicId
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import (
    BrokerRecord,
    ConfigsRecord,
    PartitionRecord,
    TopicRecord,
)

ID = TopicId(bytes(range(16)))


def test_keys_have_one_spelling() -> None:
    assert store_keys.topic_key("orders") == "/topics/orders"
    assert store_keys.partition_key(ID, 7) == "/partitions/AAECAwQFBgcICQoLDA0ODw/000007"
    assert store_keys.partition_key(ID, 7).startswith(store_keys.partitions_prefix(ID))
    assert store_keys.deleted_key(ID) == "/deleted/AAECAwQFBgcICQoLDA0ODw"
    assert store_keys.broker_key(3) == "/brokers/3"
    assert store_keys.broker_configs_key(3) == "/configs/brokers/3"
    assert store_keys.group_configs_key("a/b") == "/configs/groups/a/b"


def test_record_round_trips() -> None:
    record = TopicRecord(
        id="x",
        partitions=(
            PartitionRecord(
                replicas=(1, 2, 3),
                leader=2,
                isr=(2, 3),
                leader_epoch=4,
                partition_epoch=9,
                elr=(1,),
                last_known_elr=(1,),
                adding=(3,),
                removing=(1,),
                is_recovering=True,
            ),
        ),
        configs={"retention.ms": "5"},
    )
    assert store_keys.decode(TopicRecord, store_keys.encode(record)) == record


def test_default_fields_are_not_written() -> None:
    record = PartitionRecord(replicas=(1,), leader=1, isr=(1,))
    assert store_keys.encode(record) == b'{"replicas":[1],"leader":1,"isr":[1]}'


def test_fields_of_a_newer_version_are_ignored() -> None:
    read = store_keys.decode(BrokerRecord, b'{"node_id":1,"host":"h","port":2,"moon":"full"}')
    assert read == BrokerRecord(1, "h", 2)


def test_record_of_the_wrong_type_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        store_keys.decode(ConfigsRecord, b'{"values":{"a":1}}')
