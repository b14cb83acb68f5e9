"""Checkpoints of long jobs: state that a handler saves, and reads again after a redelivery.

The state is a record of the topic `<topic>.checkpoints`, with a key for group and message; the
newest record counts. Before it is written the lease is renewed, so a consumer that has lost its
lease cannot save. Once a message is done or dead-lettered its state is deleted, so that a replay
begins anew; a message that a redrive sends back is another message.

The topic is compacted, has one partition, and drops records after `RETENTION_MS`. It is read from
the time of the message on, and only for messages that were delivered before. Works with every
broker.
"""

import asyncio
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import WallClock
from penstock.client.list_offsets import LATEST, list_offsets
from penstock.client.metadata import TopicPartition

if TYPE_CHECKING:
    from penstock.app.client import Client
    from penstock.app.message import Received

SUFFIX = ".checkpoints"
RETENTION_MS = 7 * 86_400_000
SILENCE_S = 5.0
"""Longest wait for one record below the end of the topic."""
CONFIGS = {"cleanup.policy": "compact,delete", "retention.ms": str(RETENTION_MS)}


class Checkpoints:
    """Checkpoints of the messages that one group receives."""

    def __init__(self, client: "Client", clock: WallClock, group: str) -> None:
        self._client = client
        self._clock = clock
        self._group = group
        self._created: set[str] = set()
        self._deleting: set[asyncio.Task[None]] = set()

    async def save(self, message: "Received", body: bytes) -> None:
        topic = message.topic + SUFFIX
        if topic not in self._created:
            await self._client.create_topic(topic, partitions=1, configs=CONFIGS)
            self._created.add(topic)
        await self._write(message, body)

    async def load(self, message: "Received") -> bytes | None:
        """Returns the state that was saved last; None without any."""
        topic, key = message.topic + SUFFIX, self._key_of(message)
        try:
            await self._client.admin.describe_topics([topic])
        except Refused as refused:
            if refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None
        where = TopicPartition(topic, 0)
        end_offset = (await list_offsets(self._client.cluster, {where: LATEST}))[where].offset
        found: bytes | None = None
        async with self._client.consume(topic) as reader:
            offset = await reader.seek(topic, 0, timestamp=message.timestamp_ms)
            while offset < end_offset:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        record = await anext(reader)
                except TimeoutError:
                    break  # Compaction has removed the last records.
                offset = record.offset + 1
                if record.key == key:
                    found = record.value
        return found

    def delete(self, message: "Received") -> None:
        """Deletes the state soon; a failure leaves it until the topic drops it."""
        task = asyncio.get_running_loop().create_task(self._delete(message))
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)

    async def close(self) -> None:
        """Waits until all deletions were sent."""
        await asyncio.gather(*self._deleting, return_exceptions=True)

    async def _delete(self, message: "Received") -> None:
        try:
            await self._write(message, None)
        except (Refused, OSError):
            return

    async def _write(self, message: "Received", body: bytes | None) -> None:
        # Never before the message, because `load` begins at its time.
        now_ms = self._clock.now_ms()
        await self._client.publish(
            message.topic + SUFFIX,
            body,
            key=self._key_of(message),
            partition=0,
            timestamp_ms=max(now_ms, message.timestamp_ms),
        )

    def _key_of(self, message: "Received") -> bytes:
        return f"{self._group}/{message.partition}/{message.offset}".encode()
