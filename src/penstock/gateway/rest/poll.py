"""Receiving: `GET /topics/{name}/poll`, as a queue or as a log.

As a queue, each message is leased to the caller and comes with a receipt. The caller settles it
with `/ack`, `/nack`, `/reject` or `/extend` (`settle`), or it is redelivered when the lease
expires. As a log, messages are read from the group's committed offsets on, which `POST
/offsets/commit` changes.
"""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation
from penstock.gateway.core.gateway import LOCK_MS_MAX, RECORDS_MAX, WAIT_MS_MAX, Gateway
from penstock.gateway.http.request_io import (
    ClientWatch,
    choice,
    integer,
    json_answer,
    optional_integer,
    optional_text,
    principal_of,
    text,
)
from penstock.gateway.rest.endpoint import Parameter, RestEndpoint
from penstock.gateway.rest.message_json import (
    MessageAnswer,
    PollAnswer,
    message_answer,
    received_answer,
)

QUEUE, LOG = "queue", "log"
MAX_DEFAULT = 10
PARTITION_MAX = (1 << 31) - 1
OFFSET_MAX = (1 << 63) - 1


async def poll(gateway: Gateway, request: Request) -> Response:
    mode = choice(request, "mode", QUEUE, LOG)
    wait_ms = integer(request, "wait_ms", 0, 0, WAIT_MS_MAX)
    read = _read if mode == LOG else _receive
    # Watches the client only if there are no messages yet: watching costs more than responding.
    async with ClientWatch(request) as client:
        found = await read(gateway, request, wait_ms, client.start)
    return json_answer({"messages": found})


async def _receive(
    gateway: Gateway, request: Request, wait_ms: int, on_wait: Callable[[], None]
) -> list[MessageAnswer]:
    found = await gateway.receive(
        principal_of(request),
        request.path_params["name"],
        text(request, "group"),
        records_max=integer(request, "max", MAX_DEFAULT, 1, RECORDS_MAX),
        wait_ms=wait_ms,
        lock_ms=optional_integer(request, "lock_ms", 1, LOCK_MS_MAX),
        on_wait=on_wait,
    )
    return [received_answer(one) for one in found]


async def _read(
    gateway: Gateway, request: Request, wait_ms: int, on_wait: Callable[[], None]
) -> list[MessageAnswer]:
    count = integer(request, "max", MAX_DEFAULT, 1, RECORDS_MAX)
    principal = principal_of(request)
    topic = gateway.topic_to(principal, Operation.READ, request.path_params["name"])
    positions = await log_positions(gateway, request)
    found = await gateway.log.read(
        principal, topic, positions, records_max=count, wait_ms=wait_ms, on_wait=on_wait
    )
    return [message_answer(*message[:7]) for message in found]


async def log_positions(gateway: Gateway, request: Request) -> dict[int, int]:
    """Returns the offsets from which a request reads: its own, or those of its group."""
    principal = principal_of(request)
    topic = gateway.topic_to(principal, Operation.READ, request.path_params["name"])
    group = optional_text(request, "group")
    reset = choice(request, "reset", "earliest", "latest")
    partition = optional_integer(request, "partition", 0, PARTITION_MAX)
    offset = optional_integer(request, "offset", 0, OFFSET_MAX)
    if partition is not None and partition >= len(topic.partitions):
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {partition} does not exist: {topic.name} has partitions 0 to "
            f"{len(topic.partitions) - 1}",
        )
    if offset is not None:
        if partition is None:
            raise Refused(
                ErrorCode.INVALID_REQUEST, "offset without partition: pass the partition, too"
            )
        return {partition: offset}
    if group is not None:
        positions = await gateway.log.group_positions(principal, topic, group, reset)
    else:
        positions = await gateway.log.ends(principal, topic, reset)
    if partition is not None:
        positions = {at: where for at, where in positions.items() if at == partition}
    return positions


LOG_PARAMETERS = (
    Parameter(
        "reset",
        "log: start of a group without committed offsets, earliest or latest",
        default="earliest",
    ),
    Parameter("partition", "log: read only this partition", "integer"),
    Parameter("offset", "log: read from this offset instead of the group's", "integer"),
)
MODE = Parameter(
    "mode",
    "queue: each message goes to one consumer, with a receipt; log: read from the group's "
    "committed offsets on, see POST /offsets/commit",
    default=QUEUE,
)
LOCK = Parameter(
    "lock_ms",
    "queue: duration of the leases, instead of the group's share.record.lock.duration.ms",
    "integer",
)

ENDPOINTS = (
    RestEndpoint(
        "GET",
        "/topics/{name}/poll",
        "receive messages for a group, as a queue or as a log",
        poll,
        parameters=(
            Parameter("group", "share group; log: consumer group", is_required=True),
            Parameter("max", "maximum number of messages", "integer", MAX_DEFAULT),
            Parameter("wait_ms", "maximum time to wait for messages", "integer", 0),
            MODE,
            LOCK,
            *LOG_PARAMETERS,
        ),
        answer=PollAnswer,
        description=(
            "In queue mode a message comes with a receipt: settle it with /ack, /nack, /reject or "
            "/extend before lock_until_ms. A new group starts with the oldest message, unless its "
            "config share.auto.offset.reset says otherwise."
        ),
        refusals=(403, 404, 409, 422, 503),
    ),
)
