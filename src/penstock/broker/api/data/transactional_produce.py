"""The transactional side of Produce: nothing is written outside its transaction (KIP-890).

The first batch of a transaction to a partition is taken to the transaction's coordinator: from
Produce v12 on it enters the partition, before that it looks whether AddPartitionsToTxn did. Later
batches find the transaction open in the partition's own log and are not asked about.

The question may take time, in which the transaction may end. A guard on each such write sees that.
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
    """Whether the log has this producer's transaction open, at the same epoch."""
    producer = partition.log.producers.by_id.get(header.producer_id)
    return (
        producer is not None
        and producer.txn_first_offset >= 0
        and producer.epoch == header.producer_epoch
    )


@dataclass(slots=True)
class Doubt:
    """A batch that must be asked about before it is written."""

    data: PartitionProduceData
    partition: Partition
    producer: ProducerEpoch
    guard: Guard


@dataclass(slots=True)
class TransactionalBatches:
    """The batches of one request that need a coordinator's word."""

    ctx: ProduceContext
    call: Call
    transactional_id: str
    doubts: list[Doubt] = field(default_factory=list)
    refused: dict[int, Refused] = field(default_factory=dict)
    """By the id of a batch's `PartitionProduceData`."""

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
        """Whether all of them may be written without anything to wait for.

        So it is with clients that say beforehand what they will write to (Produce before v12),
        if their coordinator is on this node. Most batches are large, and need no copy then.
        """
        if not self.doubts:
            return True
        if self.call.version >= PRODUCE_ADDS_SINCE:
            return False
        if not self._is_verifying:
            return True
        vouches = self.ctx.txns.vouches
        return all(
            vouches(self.transactional_id, producer, _places(doubts))
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
        """Hears the coordinator about all of them."""
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
        """What may be written now, without another wait in between."""
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
    """Why a transactional batch that nobody vouches for is not written."""
    return Refused(
        ErrorCode.INVALID_TXN_STATE, "the transaction ended before the batch could be written"
    )
