"""Queue reader: an iterator of leased messages over a member of a share group.

Joins on first use. `delivery` defines when a message is acknowledged: "at-least-once" (the default)
when the caller does so, "at-most-once" before the caller receives it. Exactly-once does not exist
for a queue: an acknowledgement cannot be part of a transaction, here as in Kafka. The closest is
at-least-once with an idempotent handler (`penstock.app.dedup`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from penstock.app.checkpoints import Checkpoints
from penstock.app.durations import Duration, ms_of
from penstock.app.message import Message
from penstock.app.tracing import MessageTrace
from penstock.base.errors import ErrorCode, Refused
from penstock.base.tracing import Tracer
from penstock.client.cluster import Cluster
from penstock.client.share.acknowledgements import AcknowledgementType
from penstock.client.share.consumer import ShareConfig, ShareConsumer

_POLL_MS = 60_000


class QueueReader(AsyncIterator[Message]):
    """`async for message in client.queue("jobs", group="workers")`; close it or the client.

    Several tasks may read from one reader: each message goes to one of them.
    """

    def __init__(
        self,
        cluster: Cluster,
        prepare: Callable[[], Awaitable[None]],
        group: str,
        topics: Sequence[str],
        delivery: str = "at-least-once",
        config: ShareConfig | None = None,
        tracer: Tracer | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        check_delivery(delivery)
        self._tracer = tracer
        self._checkpoints = checkpoints
        self.group = group
        self.topics = tuple(topics)
        self._delivery = delivery
        self._cluster = cluster
        self._prepare = prepare
        self._consumer = ShareConsumer(cluster, group, topics, config)
        self._starting: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> "QueueReader":
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def silent_s(self) -> float:
        """Seconds since which no broker has answered this reader; 0.0 while one does."""
        return self._consumer.silent_s()

    @property
    def last_error(self) -> Exception | None:
        """Error of the connection that failed last."""
        return self._consumer.last_error

    def __aiter__(self) -> "QueueReader":
        return self

    async def __anext__(self) -> Message:
        while True:
            found = await self.receive(1, _POLL_MS / 1000)
            if found:
                return found[0]
            if self._is_closed:
                raise StopAsyncIteration

    async def start(self) -> None:
        """Joins the group; the first read does so too. Raises Refused for an unknown topic."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
        try:
            await asyncio.shield(self._starting)
        except (Refused, OSError):
            self._starting = None
            raise
        except asyncio.CancelledError:
            if self._is_closed and self._starting is not None and self._starting.cancelled():
                raise Refused(ErrorCode.INVALID_REQUEST, "the reader was closed") from None
            raise

    async def _start(self) -> None:
        await self._cluster.bootstrap()
        await self._prepare()
        await self._consumer.start()

    async def receive(self, max: int = 1, wait: Duration = 0.0) -> list[Message]:
        """Returns up to `max` messages as soon as one is there; none after `wait`."""
        if max < 1:
            raise ValueError(f"max={max}: pass 1 or more")
        if self._is_closed:
            return []
        try:
            await self.start()
            leases = await self._consumer.receive(max, ms_of(wait))
        except Refused:
            if self._is_closed:
                return []
            raise
        if self._delivery == "at-most-once":
            done = [self._consumer.settle(lease, AcknowledgementType.ACCEPT) for lease in leases]
            outcomes = await asyncio.gather(*done, return_exceptions=True)
            leases = [
                lease for lease, failed in zip(leases, outcomes, strict=True) if failed is None
            ]
        if self._tracer is None:
            return [Message(self._consumer, lease, None, self._checkpoints) for lease in leases]
        return [
            Message(
                self._consumer,
                lease,
                MessageTrace(self._tracer, lease.message, self.group, lease.delivery_count),
                self._checkpoints,
            )
            for lease in leases
        ]

    async def flush(self, timeout_s: float = 30.0) -> None:
        """Waits until the broker answered every acknowledgement, or until the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._consumer.flush()
        except TimeoutError:
            return

    async def close(self) -> None:
        """Releases unsettled messages, and leaves the group."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._consumer.close()
        if self._checkpoints is not None:
            await self._checkpoints.close()
        await self._cluster.close()


def check_delivery(delivery: str) -> None:
    """Raises ValueError for a guarantee that queues do not offer."""
    if delivery == "exactly-once":
        raise ValueError(
            "a queue delivers at least once or at most once: an acknowledgement cannot be part of "
            "a transaction. Use delivery='at-least-once' with an idempotent handler "
            "(penstock.app.dedup), or client.consume(..., delivery='exactly-once')"
        )
    if delivery not in ("at-least-once", "at-most-once"):
        raise ValueError(f"delivery={delivery!r}: choose 'at-least-once' or 'at-most-once'")
