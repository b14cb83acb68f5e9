"""Consume-transform-produce transaction of a log reader: buffered outputs and offsets.

Outputs are buffered here and committed in one short transaction with the offsets of their input
messages: all of it, or nothing. Outputs of the current message are committed after it was handled.
Bounds: a commit is due at `BYTES_MAX` of outputs, and one message's outputs may not exceed it.
"""

from collections.abc import Mapping

from penstock.app.outgoing import Outgoing, encode_key, encode_payload
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import WallClock
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed
from penstock.client.consumer.group_member import GroupMembership
from penstock.client.metadata import TopicPartition
from penstock.client.producer.batch import record_bytes
from penstock.client.producer.partitioner import partition_for_key
from penstock.client.producer.transactional import TransactionalWriter
from penstock.wire.records import Record

BYTES_MAX = 512 * 1024


class Transaction:
    """Uncommitted outputs; `commit` writes them with offsets, `forget` discards them."""

    def __init__(
        self, cluster: Cluster, clock: WallClock, group: str, transactional_id: str
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._group = group
        self._writer = TransactionalWriter(cluster, transactional_id)
        self._has_begun = False
        self._outputs: dict[TopicPartition, list[Record]] = {}
        self._current: list[tuple[TopicPartition, Record]] = []
        self._size_bytes = 0
        self._current_bytes = 0
        self._next_partition = 0

    @property
    def is_due(self) -> bool:
        return self._size_bytes >= BYTES_MAX

    async def add(self, topic: str, message: Outgoing) -> None:
        """Buffers an output of the current message."""
        info = await self._cluster.topic(topic, auto_create=True)
        key = encode_key(message.key)
        timestamp_ms = message.timestamp_ms
        record = Record(
            0,
            self._clock.now_ms() if timestamp_ms is None else timestamp_ms,
            key,
            encode_payload(message.payload),
            message.record_headers(),
        )
        partition = message.partition
        if partition is None and key is not None:
            partition = partition_for_key(key, len(info.partitions))
        elif partition is None:
            partition = self._next_partition % len(info.partitions)
            self._next_partition += 1
        if partition not in info.partitions:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has {len(info.partitions)} partitions, numbered from 0: "
                f"it has no partition {partition}",
            )
        self._current_bytes += record_bytes(record)
        if self._current_bytes > BYTES_MAX:
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"outputs of one message exceed {BYTES_MAX} bytes; publish less per message",
            )
        self._current.append((TopicPartition(topic, partition), record))

    def handled(self) -> None:
        """Marks the current message as handled: the next commit includes its outputs."""
        for where, record in self._current:
            self._outputs.setdefault(where, []).append(record)
        self._size_bytes += self._current_bytes
        self.drop_current()

    def drop_current(self) -> None:
        """Discards the current message's outputs: it failed, or its partition was lost."""
        self._current, self._current_bytes = [], 0

    def forget(self) -> None:
        """Discards everything; the next `begin` initializes the writer again."""
        self.drop_current()
        self._outputs, self._size_bytes = {}, 0
        self._has_begun = False

    async def begin(self) -> None:
        if not self._has_begun:
            await self._writer.begin()
            self._has_begun = True

    async def commit(
        self, positions: Mapping[TopicPartition, int], member: GroupMembership
    ) -> None:
        """Commits atomically. If it raises, `forget` and read from the committed offsets."""
        await self.begin()
        outputs, self._outputs, self._size_bytes = self._outputs, {}, 0
        kept = {where: Committed(offset) for where, offset in positions.items()}
        await self._writer.write(outputs, self._group, kept, member)
