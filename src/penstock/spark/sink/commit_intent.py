"""Commit intent of a micro-batch, stored before its first transaction commits.

Each writing task has its own transaction, and they do not end at the same time. So the driver first
stores the list of them. Any later driver that reads the intent commits the rest, even if the first
one has died. The batch is not run again, so it need not produce the same rows.

An intent is committed offsets of the group `penstock-spark-<query>-decided` in the ledger topic:
the offset is the batch number plus one, the metadata lists the producers as text. Brokers store
4 KiB of metadata per offset (`offset.metadata.max.bytes`), so an intent may span several
partitions; partition 0 is written last and makes it valid. A batch with too many transactions, or
on a broker with a lower limit, has no intent: then only the tasks' entries in the ledger show what
is committed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed, commit_offsets, committed_offsets
from penstock.client.metadata import TopicPartition
from penstock.client.producer.identity import ProducerIdentity
from penstock.client.producer.transaction import OpenTransaction
from penstock.spark.sink.committed_batches import (
    LEDGER_PARTITIONS,
    TOPIC,
    committed_offset_of,
    transactional_id_of,
)

TEXT_MAX: Final = 4_000
"""Maximum bytes of metadata per committed offset, below Kafka's default of 4 KiB."""


@dataclass(frozen=True, slots=True)
class CommitIntent:
    """Last batch with a commit intent, and its transactions; none: it was committed long ago."""

    batch_id: int
    txns: Mapping[int, OpenTransaction] = field(default_factory=dict)
    """By task."""
    is_whole: bool = True
    """True if all producers of the batch are known."""


async def has_commit_intent(cluster: Cluster, query_id: str, batch_id: int) -> bool:
    """True if this batch or a later one has a commit intent."""
    group = _group(query_id)
    return await committed_offset_of(cluster, group, TopicPartition(TOPIC, 0)) > batch_id


async def store_commit_intent(
    cluster: Cluster, query_id: str, batch_id: int, txns: Mapping[int, OpenTransaction]
) -> None:
    """Stores the intent to commit these transactions. From here on they must be committed."""
    texts = write_producers({task: txn.identity for task, txn in txns.items()})
    if texts is None:
        return
    places = {
        TopicPartition(TOPIC, place): Committed(batch_id + 1, metadata=text)
        for place, text in enumerate(texts)
    }
    first = {TopicPartition(TOPIC, 0): places.pop(TopicPartition(TOPIC, 0))}
    try:
        for part in (places, first):
            if part:
                await commit_offsets(cluster, _group(query_id), part)
    except Refused as refused:
        if refused.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE:
            raise


async def withdraw_commit_intent(cluster: Cluster, query_id: str, batch_id: int) -> None:
    """Withdraws the intent of a batch that cannot be committed and must run again."""
    before = {TopicPartition(TOPIC, 0): batch_id}
    await commit_offsets(cluster, _group(query_id), before)


async def read_commit_intent(cluster: Cluster, query_id: str) -> CommitIntent | None:
    """Last commit intent of the query; None if it never had one."""
    kept = await committed_offsets(cluster, _group(query_id))
    first = kept.get(TopicPartition(TOPIC, 0))
    if first is None or first.offset == 0:
        return None
    texts = [
        one.metadata or ""
        for where, one in sorted(kept.items())
        if where.topic == TOPIC and one.offset == first.offset
    ]
    producers, is_whole = read_producers(texts)
    txns = {
        task: OpenTransaction(transactional_id_of(query_id, task), who)
        for task, who in producers.items()
    }
    return CommitIntent(first.offset - 1, txns, is_whole)


def write_producers(producers: Mapping[int, ProducerIdentity]) -> list[str] | None:
    """Metadata per ledger partition: number of producers, then each task with its producer.

    None if they exceed the space of all partitions.
    """
    texts = [f"{len(producers)}"]
    for task, who in sorted(producers.items()):
        word = f" {task}:{who.producer_id}:{who.producer_epoch}"
        if len(texts[-1]) + len(word) > TEXT_MAX:
            texts.append("")
        texts[-1] += word
    return texts if len(texts) <= LEDGER_PARTITIONS else None


def read_producers(texts: list[str]) -> tuple[dict[int, ProducerIdentity], bool]:
    """Producers by task, and True if the list is complete."""
    count, *words = " ".join(texts).split() or ["0"]
    producers: dict[int, ProducerIdentity] = {}
    for word in words:
        task, producer_id, epoch = map(int, word.split(":"))
        producers[task] = ProducerIdentity(producer_id, epoch)
    return producers, len(producers) == int(count)


def _group(query_id: str) -> str:
    return f"penstock-spark-{query_id}-decided"
