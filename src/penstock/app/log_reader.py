"""Log reader: an iterator of records, alone or as a member of a consumer group (KIP-848).

`delivery` defines when offsets are committed. "at-least-once": after a message was handled, that is
when the caller asks for the next one; every `commit_every` and on close. "at-most-once": before the
messages are returned. "exactly-once": in one transaction with the messages that this reader's
`publish` wrote while handling them. Readers of committed records see all of it or nothing; after a
failure the messages are read again.

Without a group, every partition is read from `start`, and no offset is committed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Unpack

from penstock.app.durations import Moment, moment_ms
from penstock.app.message import LogMessage
from penstock.app.options import PublishOptions, refuse_unknown
from penstock.app.outgoing import Outgoing, Payload, encode_headers
from penstock.app.tracing import MessageTrace, made_from, sending
from penstock.app.transaction import Transaction
from penstock.base.errors import Refused
from penstock.base.tracing import Tracer
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import committed_offsets
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED, READ_UNCOMMITTED
from penstock.client.consumer.fetched import FetchedRecord as Fetched
from penstock.client.consumer.group_member import GroupListener, GroupMember
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets, partitions_of
from penstock.client.metadata import TopicPartition

DELIVERIES = ("at-least-once", "at-most-once", "exactly-once")
STARTS = {"earliest": EARLIEST, "latest": LATEST}
_POLL_MS = 500

log = logging.getLogger("penstock.app")


@dataclass(frozen=True, slots=True)
class LogReaderConfig:
    start: str = "earliest"
    delivery: str = "at-least-once"
    commit_every_s: float = 1.0
    is_committed_only: bool = True
    is_automatic: bool = True
    """True if the reader commits offsets by itself."""

    def check(self, group: str | None) -> None:
        if self.start not in STARTS:
            raise ValueError(f"start={self.start!r}: choose 'earliest' or 'latest'")
        if self.delivery not in DELIVERIES:
            raise ValueError(f"delivery={self.delivery!r}: choose one of {', '.join(DELIVERIES)}")
        if group is None and self.delivery == "exactly-once":
            raise ValueError(
                "delivery='exactly-once' needs a group, to commit offsets; pass group="
            )


class LogReader(AsyncIterator[LogMessage]):
    """`async with client.consume("orders", group="billing") as reader: async for m in reader`."""

    def __init__(
        self,
        cluster: Cluster,
        control: Cluster,
        topics: Sequence[str],
        group: str | None,
        config: LogReaderConfig,
        transaction: Transaction | None = None,
        publish: Callable[..., Awaitable[object]] | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        config.check(group)
        self.group = group
        self.topics = tuple(topics)
        self._config = config
        self._cluster = cluster
        """For fetches only: other requests on its connections would wait behind long polls."""
        self._control = control
        self._transaction = transaction
        self._publish = publish
        self._tracer = tracer
        isolation = READ_COMMITTED if config.is_committed_only else READ_UNCOMMITTED
        self._consumer = Consumer(
            cluster, ConsumerConfig(isolation_level=isolation, reset=STARTS[config.start])
        )
        self._member: GroupMember | None = None
        self._buffer: deque[LogMessage] = deque()
        self._current: LogMessage | None = None
        """The message returned last, not yet known to be handled."""
        self._handled: dict[TopicPartition, int] = {}
        """Offsets to commit: after the last handled message of each partition."""
        self._committing = asyncio.Lock()
        self._committed_at = 0.0
        self._failure: Exception | None = None
        self._is_started = False
        self._is_closed = False

    async def __aenter__(self) -> "LogReader":
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await self.close(is_handled=kind is None)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def __aiter__(self) -> "LogReader":
        return self

    async def __anext__(self) -> LogMessage:
        message = await self._next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def start(self) -> None:
        """Joins the group, or looks up the start offsets; the first read does so too."""
        if self._is_started:
            return
        self._is_started = True
        for cluster in (self._cluster, self._control):
            await cluster.bootstrap()
            for topic in self.topics:
                await cluster.topic(topic)
        self._committed_at = asyncio.get_running_loop().time()
        if self.group is None:
            partitions = [
                where
                for topic in self.topics
                for where in await partitions_of(self._control, topic)
            ]
            await self._assigned(partitions)
            return
        if self._transaction is not None:
            await self._transaction.begin()
        listener = GroupListener(self._assigned, self._revoked, self._lost, self._fail)
        self._member = GroupMember(self._control, self.group, self.topics, listener)
        await self._member.join()

    # Reading.

    async def _next(self) -> LogMessage | None:
        await self.start()
        self._settle_current()
        while not self._is_closed:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            await self._commit_if_due()
            if self._buffer:
                self._current = self._buffer.popleft()
                return self._current
            if self._transaction is not None:
                await self.commit()
            if not self._consumer.positions:
                await asyncio.sleep(0.02)  # Other members hold all partitions for now.
                continue
            found = await self._poll()
            positions = self._consumer.positions
            messages = [
                LogMessage(one, self._trace_of(one))
                for one in found
                if TopicPartition(one.topic, one.partition) in positions
            ]
            if messages and self._config.delivery == "at-most-once":
                self._note_handled(messages)
                await self._commit_now()
            self._buffer.extend(messages)
        return None

    def _trace_of(self, fetched: Fetched) -> MessageTrace | None:
        if self._tracer is None:
            return None
        return MessageTrace(self._tracer, fetched, self.group or "", 1)

    async def _poll(self) -> list[Fetched]:
        try:
            return await self._consumer.poll(_POLL_MS)
        except asyncio.CancelledError:
            reading = asyncio.current_task()
            if not self._is_closed or reading is None or reading.cancelling():
                raise
            return []  # The reader was closed: its fetches were cancelled, not this task.

    def _settle_current(self) -> None:
        """Marks the current message as handled: the caller asks for the next one."""
        current, self._current = self._current, None
        if current is None:
            return
        if current.where not in self._consumer.positions:
            if self._transaction is not None:
                self._transaction.drop_current()
            return
        if self._transaction is not None:
            self._transaction.handled()
        if self._config.delivery != "at-most-once":
            self._note_handled([current])

    def _note_handled(self, messages: Sequence[LogMessage]) -> None:
        for message in messages:
            self._handled[message.where] = message.offset + 1

    # Committing offsets.

    async def commit(self) -> None:
        """Commits the offsets of all handled messages now, the current one included."""
        self._settle_current()
        if self._handled:
            await self._commit_now()

    async def commit_through(self, message: LogMessage) -> None:
        """Commits the offset after one message, for callers that handle partitions in parallel.

        Needs `auto_commit=False`. A failed commit is logged: the message is then read again, here
        or by the partition's next reader.
        """
        if self._member is None or message.where not in self._consumer.positions:
            return
        try:
            await self._member.commit({message.where: message.offset + 1})
        except (Refused, OSError) as error:
            log.warning("%r may be read again: offset commit failed: %s", message, error)

    async def _commit_if_due(self) -> None:
        if not self._handled or not self._config.is_automatic:
            return
        age_s = asyncio.get_running_loop().time() - self._committed_at
        is_full = self._transaction is not None and self._transaction.is_due
        if is_full or age_s >= self._config.commit_every_s:
            await self._commit_now()

    async def _commit_now(self) -> None:
        if self._member is None:
            self._handled.clear()
            return
        async with self._committing:
            positions, self._handled = self._handled, {}
            self._committed_at = asyncio.get_running_loop().time()
            if not positions:
                return
            try:
                if self._transaction is not None:
                    await self._transaction.commit(positions, self._member.membership)
                else:
                    await self._member.commit(positions)
            except (Refused, OSError) as error:
                if self._transaction is not None:
                    log.warning("transaction of group %r aborted: %s", self.group, error)
                    await self._rewind()
                else:
                    self._handled = {**positions, **self._handled}
                    raise

    async def _rewind(self) -> None:
        """Discards the transaction and seeks back to the committed offsets."""
        assert self._transaction is not None
        self._transaction.forget()
        self._buffer.clear()
        self._current = None
        await self._transaction.begin()
        held = list(self._consumer.positions)
        self._consumer.assign({})
        await self._assigned(held)

    # Callbacks of the group member.

    async def _assigned(self, added: list[TopicPartition]) -> None:
        kept: dict[TopicPartition, int] = {}
        if self.group is not None:
            is_stable = self._transaction is not None
            known = await committed_offsets(self._control, self.group, is_stable=is_stable)
            kept = {where: known[where].offset for where in added if where in known}
        missing = {where: STARTS[self._config.start] for where in added if where not in kept}
        found = await list_offsets(self._control, missing) if missing else {}
        starts = {where: kept[where] if where in kept else found[where].offset for where in added}
        self._consumer.assign({**self._consumer.positions, **starts})

    async def _revoked(self, gone: list[TopicPartition]) -> None:
        for where in gone:
            self._consumer.unassign(where)
        self._buffer = deque(one for one in self._buffer if one.where not in gone)
        try:
            if self._config.is_automatic:
                await self._commit_now()
        except (Refused, OSError) as error:
            log.warning("offset commit of group %r failed: %s", self.group, error)
        for where in gone:
            self._handled.pop(where, None)

    def _lost(self) -> None:
        """Drops everything: other members read it again from the committed offsets."""
        self._consumer.assign({})
        self._buffer.clear()
        self._handled.clear()
        if self._transaction is not None:
            self._transaction.drop_current()

    def _fail(self, error: Exception) -> None:
        self._failure = error

    # Seeking and publishing.

    async def seek(
        self,
        topic: str,
        partition: int,
        offset: int | None = None,
        *,
        timestamp: Moment | None = None,
    ) -> int:
        """Seeks to an offset, or to the first record at or after a time. Returns the offset.

        >>> await reader.seek("orders", 0, timestamp=datetime(2026, 11, 1, tzinfo=UTC))
        """
        if (offset is None) == (timestamp is None):
            raise ValueError("pass either offset= or timestamp=, not both and not neither")
        await self.start()
        where = TopicPartition(topic, partition)
        if where not in self._consumer.positions:
            raise ValueError(f"{where} is not assigned to this reader; another member may hold it")
        if timestamp is not None:
            wanted = {where: moment_ms(timestamp)}
            offset = (await list_offsets(self._control, wanted))[where].offset
            if offset < 0:
                offset = (await list_offsets(self._control, {where: LATEST}))[where].offset
        assert offset is not None
        if offset < 0:
            raise ValueError(f"offset {offset}: pass 0 or more")
        self._buffer = deque(one for one in self._buffer if one.where != where)
        if self._current is not None and self._current.where == where:
            self._current = None
        self._consumer.seek(where, offset)
        self._handled[where] = offset
        return offset

    @property
    def assigned(self) -> list[TopicPartition]:
        """Partitions that this reader reads now."""
        return [] if self._is_closed else sorted(self._consumer.positions)

    async def publish(
        self, topic: str, payload: Payload = None, **options: Unpack[PublishOptions]
    ) -> None:
        """Publishes; with "exactly-once", as part of the transaction of the current message.

        Takes what `Client.publish` takes.
        """
        refuse_unknown(
            "publish()",
            [name for name in options if name not in PublishOptions.__annotations__],
            PublishOptions.__annotations__,
        )
        if self._tracer is not None and self._current is not None:
            headers = encode_headers(options.get("headers"))
            options["headers"] = made_from(self._tracer, self._current.fetched, headers)
        if self._transaction is not None:
            message = Outgoing(payload=payload, **options)
            if self._tracer is None:
                await self._transaction.add(topic, message)
                return
            with sending(self._tracer, topic, [message]) as (_, (traced,)):
                await self._transaction.add(topic, traced)
        else:
            assert self._publish is not None
            await self._publish(topic, payload, **options)

    async def close(self, *, is_handled: bool = True) -> None:
        """Commits offsets and leaves the group. `is_handled=False`: read the last message again."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if is_handled:
                self._settle_current()
            if self._is_started and self._config.is_automatic and self._failure is None:
                await self._commit_now()
        except (Refused, OSError) as error:
            log.warning("offset commit of group %r failed: %s", self.group, error)
        finally:
            if self._member is not None:
                await self._member.leave()
            await self._consumer.close()
            await self._cluster.close()
            await self._control.close()
