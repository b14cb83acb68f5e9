"""Markers as data: what the host must write to partitions, and what it reports back.

The host asks the shard for `WriteMarkers` right after it applied a decision's records and writes
them once these records are committed, never before: an outcome that may still be lost must not be
visible anywhere. It may write them late, twice, or again after a crash; the log takes a repeated
marker for the same epoch. Partitions whose marker is committed in their log (or that no longer
exist) are reported back with the same `WriteMarkers`.
"""

from typing import NamedTuple

from penstock.state.transactions.records import Partition, TxnRecord, TxnState


class WriteMarkers(NamedTuple):
    """End one transaction on these partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    number: int
    """Which transaction of the id: clients before KIP-890 keep their epoch from one to the next,
    so a late report could otherwise be taken for one of the next transaction's."""
    committed: bool
    transaction_version: int
    """For WriteTxnMarkers v2 and the log's check: 2 wants an epoch above the data's (KIP-1228)."""
    partitions: tuple[Partition, ...]


def markers_for(
    transactional_id: str, record: TxnRecord, partitions: tuple[Partition, ...]
) -> WriteMarkers:
    return WriteMarkers(
        transactional_id,
        record.producer_id,
        record.producer_epoch,
        record.number,
        record.state is TxnState.PREPARE_COMMIT,
        record.version,
        partitions,
    )
