"""Celery on Penstock: a transport of kombu, whose queues are topics read by one share group.

    from celery import Celery
    from penstock.integrations.celery import install

    install()
    app = Celery("shop", broker="penstock://localhost:9092")

What Celery asks of its broker is done by the queue itself: a task with `eta` or `countdown` is
published for that time (workers hold nothing in memory), `priority` is the message's priority (9
first), a rejected task goes to the dead-letter queue, and the lease of a task that runs is renewed
until its worker acknowledges it or is gone. Names of queues become names of topics, with
`queue_prefix` before them.

Not here: fanout exchanges, on which `celery inspect`, `celery control` and events depend; Celery
leaves these out for such transports. Results need a backend of their own.

Transport options: `queue_prefix`, `group`, `visibility_timeout` (seconds after which a task that
still runs is given to another worker; a day), `security` (settings by Kafka's names).
"""

import json
import queue as standard_queue
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import kombu.transport
from kombu.transport import virtual
from kombu.utils.encoding import bytes_to_str

from penstock.app.sync import SyncClient, SyncMessage, SyncQueue
from penstock.base.errors import ErrorCode, Refused
from penstock.client.errors import ConnectionLost, Unreachable

SCHEME: Final = "penstock"
PORT: Final = 9092
GROUP: Final = "celery"
VISIBILITY_SECONDS: Final = 86_400.0
PREFETCH: Final = 0
"""Messages that are fetched before Celery asks for them: its own prefetch limit counts them all."""
WAIT_SECONDS: Final = 1.0
PURGED_AT_ONCE: Final = 500

Raw = dict[str, Any]


def install() -> None:
    """Makes `penstock://` known to Celery and kombu."""
    kombu.transport.TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"


class Acknowledgements(virtual.QoS):  # type: ignore[misc]
    """Delivered messages of a channel; settles their leases instead of publishing them again."""

    def ack(self, delivery_tag: str) -> None:
        self.channel.settled(delivery_tag).ack()
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        message = self.channel.settled(delivery_tag)
        if requeue:
            message.nack(delay=0)
        else:
            message.reject("rejected by the Celery worker")
        super().ack(delivery_tag)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Leases end with their reader: there is nothing to publish again."""
        self._on_collect.cancel()
        self._delivered.clear()


class Channel(virtual.Channel):  # type: ignore[misc]
    """Channel of kombu: publishes to topics, and reads all its queues with one reader."""

    QoS = Acknowledgements
    do_restore = False
    from_transport_options = (
        *virtual.Channel.from_transport_options,
        "queue_prefix",
        "group",
        "visibility_timeout",
    )
    queue_prefix = ""
    group = GROUP
    visibility_timeout = VISIBILITY_SECONDS

    def __init__(self, connection: "Transport", **options: Any) -> None:
        super().__init__(connection, **options)
        self._taken: dict[str, SyncMessage] = {}
        self._reader: SyncQueue | None = None
        self._read: tuple[str, ...] = ()
        self._known: set[str] = set()

    @property
    def client(self) -> SyncClient:
        """Client of the connection, shared by its channels."""
        session: SyncClient = self.connection.session()
        return session

    def settled(self, delivery_tag: str) -> SyncMessage:
        """Message of a delivery, which is about to be settled."""
        return self._taken.pop(delivery_tag)

    # Queues.

    def topic_of(self, queue: str) -> str:
        return f"{self.queue_prefix}{queue}"

    def _new_queue(self, queue: str, **options: Any) -> None:
        if queue not in self._known:
            self.client.create_topic(self.topic_of(queue))
            self._known.add(queue)

    def _has_queue(self, queue: str, **options: Any) -> bool:
        try:
            self._size(queue)
        except Refused as refused:
            if refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise
        return True

    def _delete(self, queue: str, *arguments: Any, **options: Any) -> None:
        self._close_reader()
        self._known.discard(queue)
        self.client.delete_topic(self.topic_of(queue))

    # Publishing.

    def _put(self, queue: str, message: Raw, **options: Any) -> None:
        headers = message.get("headers") or {}
        eta = headers.get("eta")
        self.client.publish(
            self.topic_of(queue),
            json.dumps(message).encode(),
            deliver_at=_moment(eta) if eta else None,
            priority=self._get_message_priority(message) or None,
            expires_in=_seconds(message["properties"].get("expiration")),
        )

    # Reading.

    def _reset_cycle(self) -> None:
        """kombu calls this when a consumer comes or goes: the queues to read are others now."""
        super()._reset_cycle()
        if tuple(dict.fromkeys(self._active_queues)) != self._read:
            self._close_reader()

    def _poll(self, cycle: Any, callback: Any, timeout: float | None = None) -> None:
        """Delivers the next message of any queue; waits for one."""
        wait = WAIT_SECONDS if timeout is None else min(timeout, WAIT_SECONDS)
        found = self._open_reader().receive(max=1, wait=wait)
        if not found:
            raise standard_queue.Empty
        callback(*self._take(found[0]))

    def _get(self, queue: str, timeout: float | None = None) -> Raw:
        """Takes one message of one queue, as `basic_get` asks."""
        topic = self.topic_of(queue)
        found = self.client.poll(topic, self.group, max=1, wait=timeout or 0)
        if not found:
            raise standard_queue.Empty
        return self._take(found[0])[0]

    def _purge(self, queue: str) -> int:
        """Acknowledges every message that is ready; returns how many."""
        count = 0
        while found := self.client.poll(
            self.topic_of(queue), self.group, max=PURGED_AT_ONCE, wait=1
        ):
            for message in found:
                message.ack()
            count += len(found)
        return count

    def _size(self, queue: str) -> int:
        """Messages that are not settled yet."""
        return self.client.queue_depth(self.topic_of(queue), self.group)

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **options: Any
    ) -> None:
        """Consumes; without acknowledgements a message is settled when it is delivered."""

        def settle_first(message: Any) -> Any:
            self.settled(message.delivery_tag).ack()
            return callback(message)

        self._new_queue(queue)
        super().basic_consume(
            queue, no_ack, settle_first if no_ack else callback, consumer_tag, **options
        )

    def close(self) -> None:
        self._close_reader()
        super().close()

    def _take(self, message: SyncMessage) -> tuple[Raw, str]:
        raw: Raw = json.loads(bytes_to_str(message.payload))
        queue = message.topic.removeprefix(self.queue_prefix)
        tag = f"{message.topic}/{message.partition}/{message.offset}/{message.attempt}"
        raw["properties"]["delivery_tag"] = tag
        if message.attempt > 1:
            raw["redelivered"] = True
        self._taken[tag] = message
        return raw, queue

    def _open_reader(self) -> SyncQueue:
        if self._reader is None:
            self._read = tuple(dict.fromkeys(self._active_queues))
            reader = self.client.queue(
                [self.topic_of(queue) for queue in self._read],
                self.group,
                prefetch=PREFETCH,
                renew_for=self.visibility_timeout,
            )
            self._reader = reader.__enter__()
        return self._reader

    def _close_reader(self) -> None:
        """Closes the reader; leases of what was taken and not settled end with it."""
        reader, self._reader, self._read = self._reader, None, ()
        if reader is not None:
            self._taken.clear()
            reader.close()


class Transport(virtual.Transport):  # type: ignore[misc]
    """Transport of kombu for `penstock://user:password@host:port,host:port`."""

    Channel = Channel
    default_port = PORT
    driver_type = SCHEME
    driver_name = SCHEME
    polling_interval = None
    connection_errors = (*virtual.Transport.connection_errors, ConnectionLost, Unreachable)
    channel_errors = (*virtual.Transport.channel_errors, Refused)
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic"]), heartbeats=False
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._session: SyncClient | None = None

    def session(self) -> SyncClient:
        """Connected client; connects on demand."""
        if self._session is None:
            options = self.client.transport_options
            session = SyncClient(self._brokers(), security=self._security(options.get("security")))
            session.connect()
            self._session = session
        return self._session

    def verify_connection(self, connection: Any) -> bool:
        return self._session is not None

    def establish_connection(self) -> Any:
        self.session()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Waits in the reader of a channel, not in a loop of polls."""
        try:
            super().drain_events(connection, timeout=timeout)
        except standard_queue.Empty:
            raise TimeoutError from None

    def driver_version(self) -> str:
        from penstock import __version__

        return __version__

    def _brokers(self) -> str:
        host = self.client.hostname or "localhost"
        return host if ":" in host else f"{host}:{self.client.port or PORT}"

    def _security(self, given: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Security settings, with the login that the URL has."""
        if not self.client.userid:
            return given
        login = {"sasl.username": self.client.userid, "sasl.password": self.client.password or ""}
        return {**login, **(given or {})}


def _moment(eta: str) -> datetime:
    found = datetime.fromisoformat(eta)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _seconds(expiration: str | None) -> float | None:
    """AMQP's expiration, which is in milliseconds."""
    return int(expiration) / 1000 if expiration else None
