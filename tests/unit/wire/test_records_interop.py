"""Batches of other implementations decode here, and ours there, with every codec.

The builders and readers of aiokafka and kafka-python are the oracles.
"""

import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords

from penstock.wire.records import (
    Codec,
    Record,
    check_batch,
    codec_of,
    decode,
    encode,
    is_transactional,
)

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

SOME = [
    Record(0, 1_700_000_000_000, b"a", b"apple", (("trace", b"1"), ("empty", b""), ("null", None))),
    Record(1, 1_700_000_000_007, None, b"no key"),
    Record(2, 1_699_999_999_990, b"gone", None),
    Record(3, 1_700_000_000_001, b"", b"", (("größe", "groß".encode()),)),
    Record(4, 1_700_000_000_001, b"k" * 300, bytes(range(256)) * 600),
]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("builder", [AiokafkaBuilder, KafkaPythonBuilder])
def test_batches_of_python_clients_decode(builder: Any, codec: Codec) -> None:
    build = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=123,
        producer_epoch=4,
        base_sequence=99,
        batch_size=1 << 20,
    )
    for record in SOME:
        added = build.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
        assert added is not None
    content = memoryview(bytes(build.build()))
    header = check_batch(content)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (123, 4, 99)
    assert is_transactional(header.attributes)
    assert codec_of(header.attributes) == codec
    assert list(decode(content)) == SOME


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("reader", [AiokafkaBatch, KafkaPythonBatch])
def test_our_batches_decode_with_python_clients(reader: Any, codec: Codec) -> None:
    content = bytes(encode(SOME, codec=codec, base_offset=0))
    theirs = reader(bytearray(content)) if reader is KafkaPythonBatch else reader(content)
    assert theirs.validate_crc()
    assert [
        (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in theirs
    ] == [tuple(record) for record in SOME]


def test_buffer_of_our_batches_is_walked_by_aiokafka() -> None:
    content = bytes(encode(SOME, base_offset=3) + encode(SOME, base_offset=8, codec=Codec.ZSTD))
    theirs = AiokafkaRecords(content)
    offsets = []
    while (one := theirs.next_batch()) is not None:
        offsets += [record.offset for record in one]
    assert offsets == list(range(3, 13))
