"""Persisted records of transactional ids: one key and one value of `__transaction_state` each.

The value is the whole state, so the last record of a key is all that recovery needs. A key is a
msgpack array `[kind, version, transactional id]`, a value a tagged msgpack array; the same state
always gives the same bytes. Keys of an unknown kind or version are skipped on load, and values may
grow at their end, so that an older broker can read what a newer one wrote.
"""

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import msgspec

from penstock.base.errors import Corrupt
from penstock.base.state_machine import Record

Partition: TypeAlias = tuple[str, int]
"""Topic name and partition index."""

TXN: Final = 1
VERSION: Final = 0
NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 2**15 - 1
TRANSACTIONS_V0: Final = 0
TRANSACTIONS_V2: Final = 2


class TxnState(IntEnum):
    """State of an id's transaction, by Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


PREPARED: Final = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
"""States in which the outcome is decided and markers are still to be written."""

STATE_NAMES: Final = {
    TxnState.EMPTY: "Empty",
    TxnState.ONGOING: "Ongoing",
    TxnState.PREPARE_COMMIT: "PrepareCommit",
    TxnState.PREPARE_ABORT: "PrepareAbort",
    TxnState.COMPLETE_COMMIT: "CompleteCommit",
    TxnState.COMPLETE_ABORT: "CompleteAbort",
}


class ProducerEpoch(NamedTuple):
    """Producer id and epoch; a lower epoch of the same id is an older instance of the producer."""

    id: int
    epoch: int


NO_PRODUCER: Final = ProducerEpoch(NO_ID, NO_EPOCH)


class TxnRecord(msgspec.Struct, array_like=True, tag="t", frozen=True):
    """Durable state of one transactional id."""

    state: TxnState
    producer_id: int
    producer_epoch: int
    """In a prepared state, the epoch of the markers."""
    timeout_ms: int
    updated_ms: int
    previous_id: int = NO_ID
    previous_epoch: int = NO_EPOCH
    """Producer that may repeat the request which led to the current id and epoch (KIP-360, 890)."""
    next_id: int = NO_ID
    """Next producer id, starting at epoch 0, when the epochs of this one are used up."""
    start_ms: int = NO_TIME
    number: int = 0
    """Number of the transaction within this id; identifies it."""
    version: int = TRANSACTIONS_V0
    """Transaction version (KIP-890) with which the last transaction ended."""
    partitions: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Partitions of the open or prepared transaction; sorted."""

    @property
    def producer(self) -> ProducerEpoch:
        return ProducerEpoch(self.producer_id, self.producer_epoch)

    @property
    def previous(self) -> ProducerEpoch:
        return ProducerEpoch(self.previous_id, self.previous_epoch)

    @property
    def successor(self) -> ProducerEpoch:
        """Producer after the prepared transaction is complete."""
        return self.producer if self.next_id == NO_ID else ProducerEpoch(self.next_id, 0)


_Key: TypeAlias = tuple[int, int, str]
_key_decoder: msgspec.msgpack.Decoder[_Key] = msgspec.msgpack.Decoder(_Key)
_value_decoder = msgspec.msgpack.Decoder(TxnRecord)
_encode = msgspec.msgpack.Encoder().encode
_OURS: Final = _encode((TXN, VERSION, ""))[:3]
"""Prefix of all our keys: array of three, kind, version."""


def encode_record(transactional_id: str, record: TxnRecord | None) -> Record:
    key = _encode((TXN, VERSION, transactional_id))
    return key, None if record is None else _encode(record)


def decode_key(key: bytes) -> str | None:
    """Transactional id, or None for a key that this version does not know."""
    if key[:3] != _OURS:
        return None
    return _key_decoder.decode(key)[2]


def decode_value(value: bytes) -> TxnRecord:
    try:
        return _value_decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"invalid record of a transactional id: {error}") from error


def group_partitions(partitions: list[Partition]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Groups partitions by topic, everything sorted, as a record holds them."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return tuple((topic, tuple(indexes)) for topic, indexes in topics.items())


def each_partition(record: TxnRecord) -> list[Partition]:
    return [(topic, partition) for topic, indexes in record.partitions for partition in indexes]
