"""Replay: `POST /topics/{name}/replay`, for one group or as a copy into another topic.

A share group is offered again the records of the range that it has finished. A consumer group
without members is reset to the start of the range. A copy keeps keys, headers and timestamps; an
interrupted one resumes when the request is repeated. Offsets may use the offset syntax (`start`,
`-10`), times milliseconds or expressions (`-1h`, `2026-11-01`).
"""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import Millis
from penstock.broker.api.route_row import Operation
from penstock.client.offset_syntax import (
    OffsetPosition,
    OffsetRange,
    OffsetSyntaxError,
    parse_position,
)
from penstock.gateway.core.dead_letters import check_rate
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.request_io import json_answer, principal_of, read_json, while_connected
from penstock.gateway.rest.endpoint import RestEndpoint

PARTITIONS_MAX = 10_000


class ReplayBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Either `group` or `to_topic`; either `from_offset` or `from_time`; optionally an end."""

    group: str | None = None
    to_topic: str | None = None
    from_offset: int | str | None = None
    from_time: int | str | None = None
    until_offset: int | str | None = None
    until_time: int | str | None = None
    partitions: list[int] | None = None
    name: str | None = None
    """Name of a copy, under which an interrupted one resumes."""
    rate: float | None = None
    """Maximum records per second of a copy."""
    dry_run: bool = False


class RangeAnswer(Struct):
    partition: int
    from_offset: int
    until_offset: int


class ReplayAnswer(Struct):
    """`kind` is share, consumer or copy; `records`: number of records to read again, or copied."""

    topic: str
    kind: str
    executed: bool
    resumed: bool
    records: int
    partitions: list[RangeAnswer]


async def replay(gateway: Gateway, request: Request) -> Response:
    body = await read_json(request, ReplayBody)
    principal, admin = principal_of(request), gateway.dead_letters
    topic = gateway.topic_to(principal, Operation.READ, request.path_params["name"]).name
    wanted = range_of(body, gateway.ctx.clock.now_ms())
    if body.partitions is not None and len(body.partitions) > PARTITIONS_MAX:
        count = len(body.partitions)
        why = f"too many partitions: {count}; send at most {PARTITIONS_MAX}"
        raise Refused(ErrorCode.INVALID_REQUEST, why)
    check_rate(body.rate)
    if body.group is not None and body.to_topic is None:
        work = admin.replay(
            principal, topic, body.group, wanted, body.partitions, is_dry=body.dry_run
        )
    elif body.to_topic is not None and body.group is None:
        work = admin.copy(
            principal,
            topic,
            body.to_topic,
            wanted,
            body.partitions,
            name=body.name,
            rate_per_s=body.rate,
            is_dry=body.dry_run,
        )
    else:
        raise Refused(ErrorCode.INVALID_REQUEST, "invalid target: send either group or to_topic")
    found = await while_connected(request, work)
    ranges = [
        RangeAnswer(where.partition, span.start, span.end or span.start)
        for where, span in sorted(found.spans.items())
    ]
    return json_answer(
        ReplayAnswer(topic, found.kind, found.is_done, found.is_resumed, found.records, ranges)
    )


def range_of(body: ReplayBody, now_ms: Millis) -> OffsetRange:
    if (body.from_offset is None) == (body.from_time is None):
        raise Refused(
            ErrorCode.INVALID_REQUEST, "invalid start: send either from_offset or from_time"
        )
    if body.until_offset is not None and body.until_time is not None:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "until_offset and until_time are both set: send one"
        )
    start = _position(body.from_offset, body.from_time, now_ms)
    assert start is not None
    return OffsetRange(start, _position(body.until_offset, body.until_time, now_ms))


def _position(
    offset: int | str | None, time: int | str | None, now_ms: Millis
) -> OffsetPosition | None:
    if offset is None and time is None:
        return None
    text = str(offset) if offset is not None else "@" + str(time).removeprefix("@")
    try:
        return parse_position(text, now_ms)
    except OffsetSyntaxError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None


ENDPOINTS = (
    RestEndpoint(
        "POST",
        "/topics/{name}/replay",
        "replay a topic for one group, or as a copy into another topic",
        replay,
        body=ReplayBody,
        answer=ReplayAnswer,
        refusals=(403, 404, 409, 503),
    ),
)
