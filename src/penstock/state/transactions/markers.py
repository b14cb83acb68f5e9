"""Transaction markers as data: the host writes them to partitions and reports back.

The host takes `WriteMarkers` from the shard right after it applied a decision's records. It writes
them once these records are committed, never before: an outcome that may still be lost must not be
visible anywhere. It may write them late, twice, or again after a crash; the log accepts a repeated
marker of the same epoch. Partitions whose marker is committed in their log (or that no longer
exist) are reported back with the same `WriteMarkers`.
"""

from typing import NamedTuple

from penstock.state.transactions.records import Partition, TxnRecord, TxnState


class WriteMarkers(NamedTuple):
    """Order to end one transaction on these partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    number: int
    """Number of the transaction within its id: clients before KIP-890 keep their epoch from one
    to the next, so a late report could otherwise be attributed to the next transaction."""
    committed: bool
    transaction_version: int
    """For WriteTxnMarkers v2 and the log's check: 2 needs an epoch above the data's (KIP-1228)."""
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
