"""Writer of records and group offsets in atomic transactions (KIP-98, KIP-447).

One transaction is one call: batches for some partitions, offsets of one group with metadata, and
the end. After a failure the writer must `begin` again. This gets the next epoch and ends an open
transaction, and the committed offsets tell the caller whether the last transaction was committed.
So a caller that keeps its progress in the offsets does everything exactly once.

A later `begin` under the same transactional id, by any writer, fences this one: `Refused` with
INVALID_PRODUCER_EPOCH or PRODUCER_FENCED. The writer never begins again by itself.

The steps are those of `transaction`. A batch that the leader may have received is sent again with
the same sequence, so it is written once.
"""

from collections.abc import Mapping, Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed
from penstock.client.consumer.group_member import GroupMembership
from penstock.client.errors import RETRIABLE, refusal
from penstock.client.metadata import TopicPartition
from penstock.client.producer.identity import NO_IDENTITY
from penstock.client.producer.produce_request import (
    EXPLICIT_TXN_MAX,
    produce_request,
    produced_rows,
)
from penstock.client.producer.transaction import (
    OpenTransaction,
    add_partitions,
    begin,
    commit_group_offsets,
    end,
)
from penstock.wire.messages.produce import ProduceResponse
from penstock.wire.records import Codec, Record, encode

TIMEOUT_MS = 60_000
PRODUCE_TIMEOUT_MS = 15_000


def is_retriable(error: Exception) -> bool:
    """True if the work may succeed after another `begin`."""
    if isinstance(error, Refused):
        return error.code in RETRIABLE or error.code is ErrorCode.INVALID_TXN_STATE
    return isinstance(error, OSError)


class TransactionalWriter:
    """Writes one transaction at a time under one transactional id."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._txn = OpenTransaction(transactional_id, NO_IDENTITY)
        self._sequences: dict[TopicPartition, int] = {}
        self._is_usable = False

    @property
    def is_usable(self) -> bool:
        """True if `write` may be called without another `begin`."""
        return self._is_usable

    async def begin(self) -> None:
        """Fences the previous writer of this id and ends its open transaction."""
        self._txn = await begin(
            self._cluster, self.transactional_id, self._timeout_ms, self._txn.identity
        )
        self._sequences.clear()
        self._is_usable = True

    async def write(
        self,
        batches: Mapping[TopicPartition, Sequence[Record]],
        group: str,
        positions: Mapping[TopicPartition, Committed],
        membership: GroupMembership | None = None,
        codecs: Mapping[TopicPartition, Codec] | None = None,
    ) -> dict[TopicPartition, int]:
        """Writes one transaction; returns the first offset of each batch.

        If it raises, the caller must `begin` again. `codecs` selects batches to compress. With a
        membership, the offsets are refused once the group has removed that member.
        """
        assert self._is_usable, "begin first"
        self._is_usable = False
        if batches:
            await add_partitions(self._cluster, self._txn, list(batches))
        offsets = await self._produce(batches, codecs or {})
        if positions:
            await commit_group_offsets(self._cluster, self._txn, group, positions, membership)
        # Committing is idempotent as long as no other transaction begins in between.
        await end(self._cluster, self._txn, committed=True)
        self._is_usable = True
        return offsets

    # -- producing -----------------------------------------------------------------------------

    async def _produce(
        self,
        batches: Mapping[TopicPartition, Sequence[Record]],
        codecs: Mapping[TopicPartition, Codec],
    ) -> dict[TopicPartition, int]:
        encoded = {
            where: encode(
                records,
                codec=codecs.get(where, Codec.NONE),
                producer_id=self._txn.identity.producer_id,
                producer_epoch=self._txn.identity.producer_epoch,
                base_sequence=self._sequences.get(where, 0),
                transactional=True,
            )
            for where, records in batches.items()
        }
        offsets: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            missing = [where for where in batches if where not in offsets]
            for node_id, places in (await self._cluster.by_leader(missing)).items():
                parts = {where: memoryview(encoded[where]) for where in places}
                await self._produce_at(node_id, parts, offsets)

        if batches:
            topics = {where.topic for where in batches}
            await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms, topics=topics)
        for where, records in batches.items():
            self._sequences[where] = self._sequences.get(where, 0) + len(records)
        return offsets

    async def _produce_at(
        self,
        node_id: int,
        batches: Mapping[TopicPartition, memoryview],
        offsets: dict[TopicPartition, int],
    ) -> None:
        request = produce_request(
            batches.items(),
            timeout_ms=PRODUCE_TIMEOUT_MS,
            transactional_id=self.transactional_id,
        )
        reply = await self._cluster.call(
            request, ProduceResponse, node_id=node_id, version_max=EXPLICIT_TXN_MAX
        )
        failure: Refused | None = None
        for where, row in produced_rows(reply).items():
            if row.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                offsets[where] = row.base_offset
            else:
                failure = refusal(row.error_code, row.error_message, about=str(where))
        if failure is not None:
            raise failure
