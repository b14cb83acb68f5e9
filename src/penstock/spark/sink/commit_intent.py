"""That a batch is to be committed: noted before the first of its transactions ends.

A batch is as many transactions as tasks wrote, and they do not end all at once. So the driver first
notes which they are. Whoever finds the note ends the rest of them, whatever became of the driver;
the batch is not run again, so it does not matter whether that would give the same rows.

A note is positions of the group `penstock-spark-<query>-decided` in the ledger's topic: the number
of the batch plus one, and beside it the producers as text. Brokers keep 4 KiB beside a position
(`offset.metadata.max.bytes`), so a note may take several; the one at place 0 is written last and
counts. A batch of more transactions than there is room for, or at a broker that keeps less, has no
note: what is done is then what each task's line in the ledger says.
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
from penstock.spark.sink.committed_batches import PLACES, TOPIC, position_of, txn_name

TEXT_MAX: Final = 4_000
"""Bytes beside one position."""


@dataclass(frozen=True, slots=True)
class CommitIntent:
    """The last batch that was decided, and who wrote it. Without producers: it is long done."""

    batch_id: int
    txns: Mapping[int, OpenTransaction] = field(default_factory=dict)
    """By task."""
    is_whole: bool = True
    """Whether all producers of the batch are known."""


async def is_decided(cluster: Cluster, query_id: str, batch_id: int) -> bool:
    """Whether the batch, or a later one, is to be committed as it was written."""
    group = _group(query_id)
    return await position_of(cluster, group, TopicPartition(TOPIC, 0)) > batch_id


async def decide(
    cluster: Cluster, query_id: str, batch_id: int, txns: Mapping[int, OpenTransaction]
) -> None:
    """Notes that these transactions are to be committed. From here on they must be."""
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


async def withdraw(cluster: Cluster, query_id: str, batch_id: int) -> None:
    """The batch cannot be committed as it was written: it has to be run again."""
    before = {TopicPartition(TOPIC, 0): batch_id}
    await commit_offsets(cluster, _group(query_id), before)


async def read_decision(cluster: Cluster, query_id: str) -> CommitIntent | None:
    """What was decided last, or None if nothing ever was."""
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
    txns = {task: OpenTransaction(txn_name(query_id, task), who) for task, who in producers.items()}
    return CommitIntent(first.offset - 1, txns, is_whole)


def write_producers(producers: Mapping[int, ProducerIdentity]) -> list[str] | None:
    """As texts for the places: how many, then each task with its producer. None: no room."""
    texts = [f"{len(producers)}"]
    for task, who in sorted(producers.items()):
        word = f" {task}:{who.producer_id}:{who.producer_epoch}"
        if len(texts[-1]) + len(word) > TEXT_MAX:
            texts.append("")
        texts[-1] += word
    return texts if len(texts) <= PLACES else None


def read_producers(texts: list[str]) -> tuple[dict[int, ProducerIdentity], bool]:
    """The producers by task, and whether they are all there."""
    count, *words = " ".join(texts).split() or ["0"]
    producers: dict[int, ProducerIdentity] = {}
    for word in words:
        task, producer_id, epoch = map(int, word.split(":"))
        producers[task] = ProducerIdentity(producer_id, epoch)
    return producers, len(producers) == int(count)


def _group(query_id: str) -> str:
    return f"penstock-spark-{query_id}-decided"
