"""`penstock.Client`: publish, queues, logs and topics, for asyncio.

Owns the producer and the readers that it returns, and closes them. Each reader has its own
connections, so that no publish waits behind a long poll. Works against Penstock, and against Kafka
4.2 and newer. Delays, priorities and similar options are Penstock's: Kafka delivers such messages
at once.

    async with Client("localhost:9092") as client:
        await client.publish("jobs", {"id": 1}, key="alice", delay="15m")
        async for message in client.queue("jobs", group="workers"):
            await message.ack()
"""

import base64
import logging
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, Unpack

from penstock.app.checkpoints import Checkpoints
from penstock.app.durations import Duration, Moment, moment_ms, ms_of, seconds_of
from penstock.app.log_reader import LogReader, LogReaderConfig
from penstock.app.message import Message
from penstock.app.options import (
    ClientOptions,
    LogDelivery,
    LogOptions,
    NoOptions,
    PublishOptions,
    QueueDelivery,
    QueueOptions,
    Start,
    default_brokers,
    refuse_in_tests,
    refuse_unknown,
)
from penstock.app.outgoing import Headers, Key, Outgoing, Payload
from penstock.app.publish import (
    COMPRESSIONS,
    OnFull,
    Partitioner,
    Published,
    Publisher,
    PublishSettings,
)
from penstock.app.queue_reader import QueueReader, check_delivery
from penstock.app.tracing import tracer_of
from penstock.app.transaction import Transaction
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, WallClock
from penstock.client.admin.admin import GROUP_CONFIGS, TOPIC, Admin, set_share_group_start
from penstock.client.admin.queues import inspect
from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.committed_offsets import commit_offsets
from penstock.client.connection import ConnectionConfig
from penstock.client.list_offsets import LATEST, list_offsets, partitions_of
from penstock.client.metadata import TopicPartition
from penstock.client.producer.producer import ProducerConfig
from penstock.client.security_settings import parse_security
from penstock.client.share.consumer import ShareConfig
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom

log = logging.getLogger("penstock.app")

Topics: TypeAlias = str | Sequence[str]
Reader = TypeVar("Reader", QueueReader, LogReader)

_TOPIC_OPTIONS = ("partitions", "rf", "retention_ms", "order", "configs", "exist_ok")
_POLLED_MAX = 100
"""Maximum queues in which `poll` keeps a group member; the oldest is closed beyond it."""


class Client:
    """Client of a cluster; use it as `async with Client("host:9092") as client`.

    Without `brokers`, it connects to those of the environment variable `PENSTOCK_BROKERS`, or else
    to localhost:9092.

    `linger_ms`, `batch_bytes` and `compression` shape the batches that are sent. Unsent messages
    are bounded by `buffer_bytes`. When the buffer is full, `on_full` decides: "block" makes publish
    wait, "drop" drops the message (and counts it in `dropped`), "raise" raises `BufferFull`.
    `partitioner(topic, key, partitions)` returns a partition, or None to hash the key.
    `security` takes Kafka's settings by name: `{"sasl.username": "ann", "sasl.password": "...",
    "ssl.ca.location": "ca.pem"}`; pass a TLS context as `tls` instead if you have one.
    `tracing=True` traces publishing and handling with the application's OpenTelemetry; a tracer
    provider may be passed instead.
    """

    def __init__(
        self,
        brokers: str | None = None,
        *,
        client_id: str = "penstock",
        linger_ms: float = 1.0,
        batch_bytes: int = 256 * 1024,
        compression: str = "none",
        buffer_bytes: int = 32 << 20,
        on_full: OnFull = "block",
        partitioner: Partitioner | None = None,
        delivery_timeout: Duration = 120.0,
        auto_create: bool = True,
        tls: ssl.SSLContext | None = None,
        security: Mapping[str, str] | None = None,
        tracing: Any = None,
        clock: WallClock | None = None,
        random: Random | None = None,
        **unknown: Unpack[NoOptions],
    ) -> None:
        refuse_unknown("Client()", unknown, ClientOptions.__annotations__)
        self._tracer = tracer_of(tracing)
        if compression not in COMPRESSIONS:
            raise ValueError(
                f"compression={compression!r}: choose one of {', '.join(COMPRESSIONS)}"
            )
        self._addresses = parse_brokers(default_brokers(brokers))
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        secured = parse_security(security or {}, self._random)
        self._authenticate = secured.authenticate
        self._connection_config = ConnectionConfig(client_id=client_id, tls=tls or secured.tls)
        self._publishing = PublishSettings(
            ProducerConfig(
                linger_ms=linger_ms,
                batch_bytes=batch_bytes,
                buffer_bytes=buffer_bytes,
                codec=COMPRESSIONS[compression],
                delivery_timeout_ms=ms_of(delivery_timeout),
                auto_create=auto_create,
            ),
            on_full,
            partitioner,
        )
        self._cluster: Cluster | None = None
        self._publisher: Publisher | None = None
        self._readers: dict[QueueReader | LogReader, None] = {}
        self._polled: dict[tuple[str, str], QueueReader] = {}

    async def __aenter__(self) -> "Client":
        await self.connect()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await self.close(drain=kind is None)

    async def connect(self) -> None:
        """Connects to a broker. Raises `Unreachable`, with a remedy, if no address answers."""
        if self._cluster is None:
            refuse_in_tests(self._addresses)
            cluster = self._new_cluster()
            await cluster.bootstrap()
            self._cluster = cluster
            self._publisher = Publisher(
                self._clock, self._random, cluster, self._publishing, self._tracer
            )

    async def close(self, *, drain: bool = True) -> None:
        """Sends buffered messages (unless `drain` is False), and closes every reader."""
        for reader in list(self._readers):
            if isinstance(reader, LogReader):
                await reader.close(is_handled=drain)
            else:
                await reader.close()
        self._readers.clear()
        self._polled.clear()
        if self._publisher is not None:
            await self._publisher.close(drain=drain)
        if self._cluster is not None:
            await self._cluster.close()
        self._publisher = self._cluster = None

    def _new_cluster(self) -> Cluster:
        config, authenticate = self._connection_config, self._authenticate
        return Cluster(self._random, self._addresses, config, authenticate=authenticate)

    @property
    def cluster(self) -> Cluster:
        """The connections to the brokers, for requests that this class does not offer."""
        if self._cluster is None:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "the client is not connected: use `async with Client(...) as client`",
            )
        return self._cluster

    @property
    def admin(self) -> Admin:
        """Administration: topics, configs, groups and records."""
        return Admin(self.cluster)

    def _open_publisher(self) -> Publisher:
        assert self.cluster
        assert self._publisher is not None
        return self._publisher

    # Publishing.

    async def publish(
        self,
        topic: str,
        payload: Payload = None,
        *,
        key: Key = None,
        headers: Headers = None,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
        priority: int | None = None,
        dedup_id: str | None = None,
        expires_in: Duration | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        **unknown: Unpack[NoOptions],
    ) -> Published:
        """Publishes one message and waits until it is on disk (on all in-sync replicas).

        >>> await client.publish("mail", {"to": "ann"}, key="ann", delay="15m", priority=5)
        Published(topic='mail', partition=0, offset=17)
        """
        if unknown:
            refuse_unknown("publish()", unknown, PublishOptions.__annotations__)
        message = Outgoing(
            payload=payload,
            key=key,
            headers=headers,
            delay=delay,
            deliver_at=deliver_at,
            priority=priority,
            dedup_id=dedup_id,
            expires_in=expires_in,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        return await self._open_publisher().publish(topic, message)

    async def publish_many(
        self, topic: str, messages: Iterable[Outgoing | Payload]
    ) -> list[Published]:
        """Publishes many messages in as few requests as possible, and waits for all of them.

        >>> await client.publish_many("jobs", [{"id": 1}, Outgoing(payload=b"2", key="bob")])
        """
        publisher = self._open_publisher()
        return await publisher.publish_many(
            topic,
            (one if isinstance(one, Outgoing) else Outgoing(payload=one) for one in messages),
        )

    @property
    def dropped(self) -> int:
        """Messages that were dropped because the buffer was full (`on_full="drop"`)."""
        return self._open_publisher().dropped

    async def flush(self) -> None:
        """Waits until every published message is acknowledged or has failed."""
        await self._open_publisher().flush()

    # Topics.

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        rf: int = -1,
        retention_ms: int | None = None,
        *,
        order: str | None = None,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = True,
        **unknown: Unpack[NoOptions],
    ) -> None:
        """Creates a topic; -1 means the broker's default. `order` is the order of its queues.

        A topic that exists is left as it is; what differs from the arguments is logged.

        >>> await client.create_topic("jobs", partitions=6, order="key")
        """
        refuse_unknown("create_topic()", unknown, _TOPIC_OPTIONS)
        settings = dict(configs or {})
        if retention_ms is not None:
            settings["retention.ms"] = str(retention_ms)
        if order is not None:
            settings["queue.order"] = order
        try:
            await self.admin.create_topic(name, partitions, rf, settings)
        except Refused as refused:
            if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not exist_ok:
                raise
            if differences := await self._differences(name, partitions, rf, settings):
                log.warning(
                    "topic %r exists and stays as it is, with %s: use configure_topic, "
                    "`penstock topic alter`, or other arguments",
                    name,
                    ", ".join(differences),
                )

    async def _differences(
        self, name: str, partitions: int, rf: int, settings: Mapping[str, str]
    ) -> list[str]:
        """Differences between an existing topic and what was asked for."""
        (info,) = await self.admin.describe_topics([name])
        count, copies = len(info.partitions), len(info.partitions[0].replicas)
        found = []
        if partitions not in (-1, count):
            found.append(f"{count} partitions, not {partitions}")
        if rf not in (-1, copies):
            found.append(f"{copies} replicas, not {rf}")
        if settings:
            entries = await self.admin.describe_configs(TOPIC, name, list(settings))
            values = {one.name: one.value for one in entries}
            found += [
                f"{config}={values.get(config)}, not {value}"
                for config, value in settings.items()
                if values.get(config) != value
            ]
        return found

    async def delete_topic(self, name: str) -> None:
        await self.admin.delete_topic(name)

    async def configure_topic(self, name: str, configs: Mapping[str, str]) -> None:
        await self.admin.alter_configs(TOPIC, name, configs)

    async def configure_group(self, group: str, configs: Mapping[str, str]) -> None:
        """Sets group configs, such as `share.record.lock.duration.ms`."""
        await self.admin.alter_configs(GROUP_CONFIGS, group, configs)

    # Queues.

    def queue(
        self,
        topic: Topics,
        group: str,
        *,
        delivery: QueueDelivery = "at-least-once",
        prefetch: int = 50,
        in_flight_max: int = 10_000,
        renew_for: Duration = 900.0,
        start: Start = "earliest",
        **unknown: Unpack[NoOptions],
    ) -> QueueReader:
        """A queue to iterate over; each message goes to one reader of the group.

        `prefetch` messages are fetched ahead (0: none). At most `in_flight_max` messages are
        unacknowledged. Leases are renewed for `renew_for`, then the message is redelivered.
        `start` is the position of a new group: "earliest" or "latest".
        """
        refuse_unknown("queue()", unknown, QueueOptions.__annotations__)
        check_delivery(delivery)
        if start not in ("earliest", "latest"):
            raise ValueError(f"start={start!r}: choose 'earliest' or 'latest'")
        if prefetch < 0 or in_flight_max < 1:
            raise ValueError(
                f"prefetch={prefetch}, in_flight_max={in_flight_max}: "
                "pass a prefetch of 0 or more and an in_flight_max of 1 or more"
            )
        config = ShareConfig(
            prefetch=prefetch, held_max=in_flight_max, renew_for_s=seconds_of(renew_for)
        )

        async def prepare() -> None:
            await set_share_group_start(self.admin, group, start)

        topics = [topic] if isinstance(topic, str) else list(topic)
        assert self.cluster
        reader = QueueReader(
            self._new_cluster(),
            prepare,
            group,
            topics,
            delivery,
            config,
            self._tracer,
            Checkpoints(self, self._clock, group),
        )
        return self._keep(reader)

    async def poll(
        self,
        topic: str,
        group: str,
        max: int = 1,
        wait: Duration = 0.0,
        *,
        start: Start = "earliest",
        **unknown: Unpack[NoOptions],
    ) -> list[Message]:
        """Returns up to `max` messages of a queue; waits up to `wait` for the first one.

        >>> for message in await client.poll("jobs", "workers", max=10, wait="5s"):
        ...     await message.ack()
        """
        refuse_unknown("poll()", unknown, ("max", "wait", "start"))
        name = (topic, group)
        reader = self._polled.get(name)
        if reader is None:
            if len(self._polled) >= _POLLED_MAX:
                await self._polled.pop(next(iter(self._polled))).close()
            # No prefetch: between polls this member must not hold messages.
            reader = self._polled[name] = self.queue(topic, group, prefetch=0, start=start)
        return await reader.receive(max, wait)

    async def queue_depth(self, topic: str, group: str) -> int:
        """Returns the number of messages of a queue that are not settled: ready, leased, delayed.

        For a group that never received any, all messages of the topic. Needs a Penstock broker.
        """
        assert self.cluster
        places = await partitions_of(self.cluster, topic)
        reports = (await inspect(self.cluster, group, places)).values()
        return sum(
            report.unfinished
            if report.start_offset >= 0
            else report.high_watermark - report.log_start_offset
            for report in reports
        )

    # Logs.

    def consume(
        self,
        topic: Topics,
        group: str | None = None,
        *,
        delivery: LogDelivery = "at-least-once",
        start: Start = "earliest",
        commit_every: Duration = 1.0,
        auto_commit: bool = True,
        uncommitted: bool = False,
        **unknown: Unpack[NoOptions],
    ) -> LogReader:
        """A log to iterate over, in order within each partition.

        With a group, its members share the partitions and offsets are committed: after a message
        was handled ("at-least-once"), before it is returned ("at-most-once"), or in one transaction
        with the messages of `reader.publish` ("exactly-once"). Without a group, every partition is
        read from `start`.

        >>> async with client.consume("orders", "billing", delivery="exactly-once") as orders:
        ...     async for order in orders:
        ...         await orders.publish("invoices", bill(order.json()), key=order.key)
        """
        refuse_unknown("consume()", unknown, LogOptions.__annotations__)
        topics = [topic] if isinstance(topic, str) else list(topic)
        config = LogReaderConfig(
            start, delivery, seconds_of(commit_every), not uncommitted, auto_commit
        )
        config.check(group)
        assert self.cluster
        control = self._new_cluster()
        transaction = None
        if delivery == "exactly-once":
            assert group is not None
            name = base64.urlsafe_b64encode(self._random.random_bytes(9)).decode()
            transaction = Transaction(control, self._clock, group, f"{group}-{name}")
        return self._keep(
            LogReader(
                self._new_cluster(),
                control,
                topics,
                group,
                config,
                transaction,
                self.publish,
                self._tracer,
            )
        )

    async def seek(
        self,
        topic: str,
        partition: int,
        offset: int | None = None,
        *,
        timestamp: Moment | None = None,
        group: str | None = None,
    ) -> int:
        """Moves the open log readers of a topic, or a group without members. Returns the offset."""
        where = TopicPartition(topic, partition)
        found: int | None = None
        for reader in self._readers:
            if not isinstance(reader, LogReader) or where not in reader.assigned:
                continue
            if group is None or reader.group == group:
                found = await reader.seek(topic, partition, offset, timestamp=timestamp)
        if found is not None:
            return found
        if group is None:
            raise ValueError(f"no open reader reads {where}; pass group= to set a group's offset")
        if (offset is None) == (timestamp is None):
            raise ValueError("pass either offset= or timestamp=, not both and not neither")
        if timestamp is not None:
            wanted = {where: moment_ms(timestamp)}
            offset = (await list_offsets(self.cluster, wanted))[where].offset
            if offset < 0:
                offset = (await list_offsets(self.cluster, {where: LATEST}))[where].offset
        assert offset is not None
        await commit_offsets(self.cluster, group, {where: offset})
        return offset

    def _keep(self, reader: Reader) -> Reader:
        """Registers a reader, to close it with the client."""
        for one in [one for one in self._readers if one.is_closed]:
            del self._readers[one]
        self._readers[reader] = None
        return reader


__all__ = ["Client", "Message", "Outgoing", "Published"]
