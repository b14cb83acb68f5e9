"""Verification of transactional batches: none is written outside its transaction (KIP-890).

The first batch of a transaction on a partition is verified by the transaction coordinator. From
Produce v12 on the coordinator adds the partition to the transaction; before, it checks that
AddPartitionsToTxn did. For later batches, the partition's log shows that the transaction is open.

The transaction may end during the verification. A guard on each such write detects that.
"""

from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import ProduceContext
from penstock.cluster.replication.partition import Partition
from penstock.coordinator.txn_verification import ANY_EPOCH, Guard
from penstock.state.transactions.add_partitions import PRODUCE_ADDS_SINCE, for_produce
from penstock.state.transactions.records import ProducerEpoch
from penstock.wire.messages.produce import PartitionProduceData
from penstock.wire.records import BATCH_OVERHEAD, TRANSACTIONAL, BatchHeader, read_header


def is_open(partition: Partition, header: BatchHeader) -> bool:
    """True if the log has an open transaction of this producer, at the same epoch."""
    producer = partition.log.producers.by_id.get(header.producer_id)
    return (
        producer is not None
        and producer.txn_first_offset >= 0
        and producer.epoch == header.producer_epoch
    )


@dataclass(slots=True)
class Doubt:
    """Batch that the coordinator must verify before the append."""

    data: PartitionProduceData
    partition: Partition
    producer: ProducerEpoch
    guard: Guard


@dataclass(slots=True)
class TransactionalBatches:
    """Batches of one request that the coordinator must verify."""

    ctx: ProduceContext
    call: Call
    transactional_id: str
    doubts: list[Doubt] = field(default_factory=list)
    refused: dict[int, Refused] = field(default_factory=dict)
    """Refusals by the id() of a batch's `PartitionProduceData`."""

    def consider(self, data: PartitionProduceData, partition: Partition) -> None:
        batch = data.records
        if batch is None or len(batch) < BATCH_OVERHEAD:
            return
        header = read_header(batch)
        if not header.attributes & TRANSACTIONAL or is_open(partition, header):
            return
        place = (partition.topic, partition.index, header.producer_id)
        producer = ProducerEpoch(header.producer_id, header.producer_epoch)
        adds = self.call.version >= PRODUCE_ADDS_SINCE
        guard = self.ctx.txns.guards.set(place, producer.epoch if adds else ANY_EPOCH)
        self.doubts.append(Doubt(data, partition, producer, guard))

    def is_granted(self) -> bool:
        """True if all batches may be appended without a wait.

        This holds for clients that add partitions beforehand (Produce before v12), if their
        coordinator is on this node. Then batches, which are mostly large, need no copy.
        """
        if not self.doubts:
            return True
        if self.call.version >= PRODUCE_ADDS_SINCE:
            return False
        if not self._is_verifying:
            return True
        is_verified = self.ctx.txns.is_verified
        return all(
            is_verified(self.transactional_id, producer, _places(doubts))
            for producer, doubts in self._by_producer().items()
        )

    @property
    def _is_verifying(self) -> bool:
        return self.ctx.configs.flag("transaction.partition.verification.enable")

    def _by_producer(self) -> dict[ProducerEpoch, list[Doubt]]:
        found: dict[ProducerEpoch, list[Doubt]] = {}
        for doubt in self.doubts:
            found.setdefault(doubt.producer, []).append(doubt)
        return found

    async def ask(self) -> None:
        """Verifies all batches with the coordinator."""
        version = self.call.version
        adds = version >= PRODUCE_ADDS_SINCE
        if not adds and not self._is_verifying:
            return
        for producer, doubts in self._by_producer().items():
            places = _places(doubts)
            found = await self.ctx.txns.enter(self.transactional_id, producer, places, adds)
            for doubt in doubts:
                refusal = found.get((doubt.partition.topic, doubt.partition.index))
                if refusal is not None:
                    code = for_produce(refusal.code, version)
                    self.refused[id(doubt.data)] = Refused(code, refusal.message)

    def admitted(self) -> set[int]:
        """Returns the batches that may be appended now; valid until the next wait."""
        return {
            id(doubt.data)
            for doubt in self.doubts
            if not doubt.guard.is_broken and id(doubt.data) not in self.refused
        }

    def close(self) -> None:
        for doubt in self.doubts:
            self.ctx.txns.guards.lift(doubt.guard)


def _places(doubts: list[Doubt]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((d.partition.topic, d.partition.index) for d in doubts))


def outside() -> Refused:
    """Returns the refusal of a transactional batch that was not verified."""
    return Refused(
        ErrorCode.INVALID_TXN_STATE, "the transaction ended before the batch could be written"
    )
