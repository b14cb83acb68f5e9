"""Streaming: `GET /topics/{name}/stream`, messages as server-sent events.

As a queue, messages are pushed until `prefetch` of them are not settled; the client settles them
with `/ack`, `/nack`, `/reject` or `/extend`. When the stream ends, unsettled messages are released
at once, and count as delivered. As a log, messages are pushed from the group's committed offsets
on, which `/offsets/commit` changes.

Each event has the message as JSON and `PARTITION:OFFSET` as its id. A comment is sent after
`IDLE_MS` without events, so that each side notices if the other is gone.
"""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import Refused
from penstock.base.retry import Retry
from penstock.broker.api.quota import Throttled
from penstock.broker.api.route_row import Operation
from penstock.gateway.core.gateway import LOCK_MS_MAX, Gateway, Prefetch, SettleAction, Settlement
from penstock.gateway.http.problems import entry_of
from penstock.gateway.http.request_io import (
    WaitingRequests,
    choice,
    integer,
    optional_integer,
    principal_of,
    text,
)
from penstock.gateway.http.server_sent_events import IDLE_MS, KEEP_ALIVE, EventStream, event
from penstock.gateway.rest.endpoint import Parameter, RestEndpoint
from penstock.gateway.rest.message_json import MessageAnswer, message_answer, received_answer
from penstock.gateway.rest.poll import LOCK, LOG, LOG_PARAMETERS, MODE, QUEUE, log_positions

PREFETCH_DEFAULT = 100
PREFETCH_MAX = 1_000
BATCH_MAX = 100
CHUNK_BYTES = 1 << 20
"""Maximum bytes of messages sent at a time, though never less than one message."""
PAUSE_SECONDS = (1.0, 5.0)


async def stream(gateway: Gateway, request: Request) -> Response:
    mode = choice(request, "mode", QUEUE, LOG)
    waits: WaitingRequests = request.app.state.waits
    topic = request.path_params["name"]
    if mode == LOG:
        positions = await log_positions(gateway, request)
        return EventStream(_log_events(gateway, request, positions), waits)
    group = text(request, "group")
    principal = principal_of(request)
    # Errors about the group come before the stream starts.
    await gateway.begin(principal, gateway.queue_topic(principal, topic, group), group)
    prefetch = gateway.prefetch(integer(request, "prefetch", PREFETCH_DEFAULT, 1, PREFETCH_MAX))
    lock_ms = optional_integer(request, "lock_ms", 1, LOCK_MS_MAX)
    return EventStream(_queue_events(gateway, request, group, lock_ms, prefetch), waits)


async def _queue_events(
    gateway: Gateway, request: Request, group: str, lock_ms: int | None, prefetch: Prefetch
) -> AsyncIterator[bytes]:
    topic, principal = request.path_params["name"], principal_of(request)
    retry = Retry(gateway.ctx.random, *PAUSE_SECONDS)
    yield KEEP_ALIVE
    try:
        while True:
            try:
                async with asyncio.timeout(IDLE_MS / 1000):
                    capacity = await prefetch.capacity()
            except TimeoutError:
                yield KEEP_ALIVE
                continue
            try:
                found = await gateway.receive(
                    principal,
                    topic,
                    group,
                    records_max=min(capacity, BATCH_MAX),
                    wait_ms=IDLE_MS,
                    lock_ms=lock_ms,
                    bytes_max=CHUNK_BYTES,
                )
            except Throttled as throttled:
                await asyncio.sleep(min(throttled.wait_s, IDLE_MS / 1000))
                yield KEEP_ALIVE
                continue
            except Refused as refused:
                yield event("problem", "", entry_of(refused))
                await retry.pause()
                continue
            retry.succeeded()
            prefetch.handed_out(found)
            events = [_message_event(received_answer(one)) for one in found]
            del found  # A slow client holds only the encoded events in memory.
            yield _drained(events) or KEEP_ALIVE
    finally:
        left = prefetch.close()
        if left:
            free = [Settlement(receipt, SettleAction.RELEASE, delay_ms=0) for receipt in left]
            await asyncio.shield(gateway.settle(principal, free))


async def _log_events(
    gateway: Gateway, request: Request, positions: dict[int, int]
) -> AsyncIterator[bytes]:
    principal = principal_of(request)
    retry = Retry(gateway.ctx.random, *PAUSE_SECONDS)
    yield KEEP_ALIVE
    while True:
        try:
            topic = gateway.topic_to(principal, Operation.READ, request.path_params["name"])
            found = await gateway.log.read(
                principal,
                topic,
                positions,
                records_max=BATCH_MAX,
                wait_ms=IDLE_MS,
                bytes_max=CHUNK_BYTES,
            )
        except Throttled as throttled:
            await asyncio.sleep(min(throttled.wait_s, IDLE_MS / 1000))
            yield KEEP_ALIVE
            continue
        except Refused as refused:
            yield event("problem", "", entry_of(refused))
            await retry.pause()
            continue
        retry.succeeded()
        events = [_message_event(message_answer(*message[:7])) for message in found]
        del found
        yield _drained(events) or KEEP_ALIVE


def _drained(events: list[bytes]) -> bytes:
    """Joins the events and clears the list."""
    chunk = b"".join(events)
    events.clear()
    return chunk


def _message_event(message: MessageAnswer) -> bytes:
    return event("message", f"{message.partition}:{message.offset}", message)


ENDPOINTS = (
    RestEndpoint(
        "GET",
        "/topics/{name}/stream",
        "receive messages as server-sent events",
        stream,
        parameters=(
            Parameter("group", "share group; log: consumer group", is_required=True),
            MODE,
            Parameter(
                "prefetch",
                "queue: maximum number of delivered messages that are not settled",
                "integer",
                PREFETCH_DEFAULT,
            ),
            LOCK,
            *LOG_PARAMETERS,
        ),
        media_type="text/event-stream",
        description=(
            "Events are named message, with the same JSON as in poll responses, or problem. When a "
            "queue's stream ends, unsettled messages are released at once."
        ),
        refusals=(403, 404, 409, 422),
    ),
)
