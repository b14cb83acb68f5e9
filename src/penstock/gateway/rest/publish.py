"""Publishing: `POST /topics/{name}/messages`, one message or many, as JSON or as plain bytes.

An invalid value refuses the whole request, and nothing is written. If a partition's leader refuses
a message, the others are published, and the response has status 207.
"""

from dataclasses import replace

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.base.tracing import CONTEXT_NAMES, TRACE_PARENT, context_of, with_context
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.messages import DELAY_MS_MAX, TIME_MS_MAX, OutgoingMessage, Placed
from penstock.gateway.http.problems import entry_of, problem
from penstock.gateway.http.request_io import (
    json_answer,
    optional_integer,
    optional_text,
    principal_of,
    read_json,
)
from penstock.gateway.rest.endpoint import Parameter, RestEndpoint
from penstock.gateway.rest.message_json import (
    PublishAnswer,
    PublishBody,
    outgoing_of,
    placed_answer,
    unbase64,
)
from penstock.state.queues.policy import PRIORITY_MAX

MULTI_STATUS = 207
HEADER_PREFIX = "penstock-header-"
TRACE_ID_CHARS = 32
PARTITION_MAX = (1 << 31) - 1


async def publish(gateway: Gateway, request: Request) -> Response:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/octet-stream" or kind.startswith("text/"):
        messages, is_one = [await _plain(request)], True
    else:
        messages, is_one = await _structured(request)
    name = request.path_params["name"]
    messages = _in_trace(request, messages)
    placed = await gateway.publish(principal_of(request), name, messages, all_or_none=True)
    if is_one:
        one = placed[0]
        return problem(one) if isinstance(one, Refused) else json_answer(placed_answer(one))
    return _answer(placed)


def _answer(placed: list[Placed | Refused]) -> Response:
    refused = [one for one in placed if isinstance(one, Refused)]
    entries = [entry_of(one) if isinstance(one, Refused) else placed_answer(one) for one in placed]
    if refused and len(refused) == len(placed) and len({one.code for one in refused}) == 1:
        return problem(refused[0], messages=entries)
    return json_answer({"messages": entries}, MULTI_STATUS if refused else 200)


async def _structured(request: Request) -> tuple[list[OutgoingMessage], bool]:
    body = await read_json(request, PublishBody)
    trace_id = _trace_id(request)
    if not isinstance(body.messages, list):
        return [outgoing_of(body, trace_id)], True
    if body.payload is not UNSET or body.payload_base64 is not UNSET:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "payload and messages are both set: send one of them"
        )
    if not body.messages:
        raise Refused(ErrorCode.INVALID_REQUEST, "messages is empty: send at least one")
    found = []
    for at, message in enumerate(body.messages):
        try:
            found.append(outgoing_of(message, trace_id))
        except Refused as refused:
            raise Refused(refused.code, f"messages[{at}]: {refused.message}") from None
    return found, False


async def _plain(request: Request) -> OutgoingMessage:
    """Reads a message whose payload is the body, with options in the query and in headers."""
    key = optional_text(request, "key")
    coded = optional_text(request, "key_base64")
    if key is not None and coded is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, "key and key_base64 are both set: send one")
    key_bytes = None if key is None else key.encode()
    if coded is not None:
        key_bytes = unbase64("key_base64", coded)
    headers = tuple(
        (name.removeprefix(HEADER_PREFIX), value.encode())
        for name, value in request.headers.items()
        if name.startswith(HEADER_PREFIX)
    )
    return OutgoingMessage(
        await request.body(),
        key_bytes,
        headers,
        optional_integer(request, "partition", 0, PARTITION_MAX),
        optional_integer(request, "timestamp_ms", 0, TIME_MS_MAX),
        optional_integer(request, "delay_ms", 0, DELAY_MS_MAX),
        optional_integer(request, "deliver_at_ms", 0, TIME_MS_MAX),
        optional_integer(request, "priority", 0, PRIORITY_MAX),
        optional_text(request, "dedup_id"),
        optional_integer(request, "expires_at_ms", 0, TIME_MS_MAX),
        has_envelope=True,
        trace_id=_trace_id(request),
    )


def _in_trace(request: Request, messages: list[OutgoingMessage]) -> list[OutgoingMessage]:
    """Adds the request's trace context to its messages, except to those with their own."""
    context = context_of(
        (name, value.encode())
        for name in CONTEXT_NAMES
        if (value := request.headers.get(name)) is not None
    )
    if not context:
        return messages
    return [
        one if context_of(one.headers) else replace(one, headers=with_context(one.headers, context))
        for one in messages
    ]


def _trace_id(request: Request) -> str | None:
    """Returns the request's trace id (W3C trace context), if any."""
    parts = request.headers.get(TRACE_PARENT, "").split("-")
    if len(parts) >= 4 and len(parts[1]) == TRACE_ID_CHARS and parts[1].isalnum():
        return parts[1]
    return None


ENDPOINTS = (
    RestEndpoint(
        "POST",
        "/topics/{name}/messages",
        'publish one message, or many as `{"messages": [...]}`',
        publish,
        parameters=(
            Parameter("key", "with a plain body: the key"),
            Parameter("key_base64", "with a plain body: a key that is not text"),
            Parameter("partition", "with a plain body: the partition", "integer"),
            Parameter("timestamp_ms", "with a plain body: as in a message", "integer"),
            Parameter("delay_ms", "with a plain body: as in a message", "integer"),
            Parameter("deliver_at_ms", "with a plain body: as in a message", "integer"),
            Parameter("expires_at_ms", "with a plain body: as in a message", "integer"),
            Parameter("priority", "with a plain body: as in a message", "integer"),
            Parameter("dedup_id", "with a plain body: as in a message"),
        ),
        body=PublishBody,
        answer=PublishAnswer,
        description=(
            "Responds when the messages are committed, with partition and offset of each; for "
            "one message without the list around it. Creates the topic if "
            "auto.create.topics.enable is set. A body of type application/octet-stream or text/* "
            f"is the payload itself; then HTTP headers named {HEADER_PREFIX}NAME become the "
            "message's headers. Status 207: some of several messages were refused, see their "
            "entries."
        ),
        refusals=(400, 403, 404, 413, 422, 503, 504),
    ),
)
