"""Dead letters: list dead-letter topics and their dead letters, redrive, purge.

A dead letter is identified by its partition and offset in the dead-letter topic, as in `0:15`. It
is shown as a message with details of its failure. Redrive and purge respond when all is done. A
client that disconnects stops them; repeating the request continues with the rest. A background
redrive responds at once, with a task's name (`background_jobs`).
"""

from collections.abc import Coroutine
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.grouping import ASPECTS
from penstock.client.dead_letters.message import DeadLetterMessage
from penstock.client.dead_letters.redrive import RedriveReport
from penstock.gateway.core.background_jobs import ProgressCallback
from penstock.gateway.core.dead_letters import DEAD_LETTERS_MAX, check_rate, ignore_progress
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.permissions import require_topic
from penstock.gateway.http.request_io import (
    WaitingRequests,
    choice,
    integer,
    json_answer,
    principal_of,
    read_json,
    while_connected,
)
from penstock.gateway.rest.background_jobs import job_answer
from penstock.gateway.rest.endpoint import Parameter, RestEndpoint
from penstock.gateway.rest.message_json import (
    MessageAnswer,
    MessageBody,
    message_answer,
    outgoing_of,
)

ACCEPTED = 202
LIST_DEFAULT = 100
LIST_MAX = 1_000
PREVIEW_MAX = 20


class DeadLetterSelection(Struct, forbid_unknown_fields=True, kw_only=True):
    """Selects the dead letters that match all given fields."""

    letters: list[str] = []
    error_class: str = ""
    """Pattern with the wildcards * and ?."""
    error_text: str = ""
    key: str | None = None
    header: str | None = None
    header_value: str | None = None
    failed_from_ms: int | None = None
    failed_until_ms: int | None = None
    source_topic: str = ""
    source_partition: int | None = None
    source_from: int | None = None
    source_until: int | None = None
    group: str = ""
    redrives_max: int | None = None
    error_template: str = ""
    """Words of the error message, with <*> for variable ones, as of stats by template."""


class RedriveBody(DeadLetterSelection, forbid_unknown_fields=True, kw_only=True):
    """`to`: target topic instead of each one's source. A payload replaces that of the one selected
    dead letter."""

    to: str | None = None
    limit: int = DEAD_LETTERS_MAX
    rate: float | None = None
    """Maximum dead letters per second."""
    dry_run: bool = False
    background: bool = False
    """True if the response comes at once, with a task; else it comes when all is done."""
    payload: Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class PurgeBody(DeadLetterSelection, forbid_unknown_fields=True, kw_only=True):
    """`all` must be true if nothing is selected."""

    all: bool = False
    limit: int = DEAD_LETTERS_MAX
    dry_run: bool = False


class DeadLetterTopicAnswer(Struct):
    topic: str
    partitions: int
    letters: int
    oldest_ms: int | None


class DeadLetterTopicsAnswer(Struct):
    topics: list[DeadLetterTopicAnswer]


class PlaceAnswer(Struct):
    topic: str
    partition: int
    offset: int


class DeadLetterAnswer(Struct):
    letter: str
    error_class: str
    error_message: str
    group: str
    attempts: int
    first_failure_ms: int
    last_failure_ms: int
    redrives: int
    source: PlaceAnswer | None
    source_timestamp_ms: int
    message: MessageAnswer
    traceback: str


class DeadLettersAnswer(Struct):
    letters: list[DeadLetterAnswer]
    has_more: bool


class KindAnswer(Struct):
    name: dict[str, str]
    count: int
    first_ms: int
    last_ms: int
    sample: str


class KindsAnswer(Struct):
    letters: int
    kinds: list[KindAnswer]


class TargetAnswer(Struct):
    topic: str
    partition: int
    letters: int


class RedriveSettled(Struct):
    """`skipped`: dead letters whose record was lost before it was copied. `too_large`: ids of dead
    letters too large for their target topic, which stay."""

    executed: bool
    letters: int
    skipped: int
    targets: list[TargetAnswer]
    first: list[DeadLetterAnswer]
    """In a dry run, the first selected dead letters."""
    too_large: list[str]


# -- listing ----------------------------------------------------------------------------------


async def list_dead_letter_topics(gateway: Gateway, request: Request) -> Response:
    found = await gateway.dead_letters.describe_topics(principal_of(request))
    rows = [
        DeadLetterTopicAnswer(box.topic, box.partitions, box.messages, box.oldest_ms)
        for box in found
    ]
    return json_answer(DeadLetterTopicsAnswer(rows))


async def list_dead_letters(gateway: Gateway, request: Request) -> Response:
    limit = integer(request, "limit", LIST_DEFAULT, 1, LIST_MAX)
    work = gateway.dead_letters.some(
        principal_of(request), _topic(request), _queried(request), limit
    )
    found, has_more = await while_connected(request, work)
    return json_answer(DeadLettersAnswer([_dead_letter_answer(one) for one in found], has_more))


async def show_dead_letter(gateway: Gateway, request: Request) -> Response:
    name = request.path_params["letter"]
    chosen = filter_of(DeadLetterSelection(letters=[name]))
    found, _ = await gateway.dead_letters.some(principal_of(request), _topic(request), chosen, 1)
    if not found:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"dead letter {name[:40]} does not exist, or was settled",
        )
    return json_answer(_dead_letter_answer(found[0]))


async def count_dead_letters(gateway: Gateway, request: Request) -> Response:
    aspect = choice(request, "by", *ASPECTS)
    work = gateway.dead_letters.kinds(
        principal_of(request), _topic(request), aspect, _queried(request)
    )
    kinds = await while_connected(request, work)
    rows = [
        KindAnswer(
            dict(zip(kinds.columns, kind.name, strict=True)),
            kind.count,
            kind.first_ms,
            kind.last_ms,
            kind.sample,
        )
        for kind in kinds.largest()
    ]
    return json_answer(KindsAnswer(kinds.count, rows))


# -- settling ---------------------------------------------------------------------------------


async def redrive(gateway: Gateway, request: Request) -> Response:
    body = await read_json(request, RedriveBody)
    chosen, principal, topic = filter_of(body), principal_of(request), _topic(request)
    check_rate(body.rate)
    if body.dry_run:
        return await _preview(gateway, request, chosen, body.limit)
    payload = payload_of(body)

    def work(on_progress: ProgressCallback) -> Coroutine[Any, Any, RedriveReport]:
        return gateway.dead_letters.redrive(
            principal,
            topic,
            chosen,
            to=body.to,
            limit=body.limit,
            rate_per_s=body.rate,
            payload=payload,
            on_progress=on_progress,
        )

    if body.background:
        require_topic(gateway.ctx, principal, Operation.READ, topic)
        gateway.dead_letters.check_limit(body.limit)
        job, task = gateway.background_jobs.start(topic, "redrive", work)
        waits: WaitingRequests = request.app.state.waits
        waits.add(task)
        return json_answer(job_answer(job), ACCEPTED)
    return json_answer(_settled_answer(await while_connected(request, work(ignore_progress))))


async def purge(gateway: Gateway, request: Request) -> Response:
    body = await read_json(request, PurgeBody)
    chosen = filter_of(body)
    if not body.all and not chosen.described():
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "nothing is selected: set all to true to purge all dead letters, or select some",
        )
    if body.dry_run:
        return await _preview(gateway, request, chosen, body.limit)
    work = gateway.dead_letters.purge(
        principal_of(request), _topic(request), chosen, limit=body.limit
    )
    return json_answer(_settled_answer(await while_connected(request, work)))


async def _preview(
    gateway: Gateway, request: Request, chosen: DeadLetterFilter, limit: int
) -> Response:
    work = gateway.dead_letters.some(principal_of(request), _topic(request), chosen, limit)
    found, _ = await while_connected(request, work)
    first = [_dead_letter_answer(one) for one in found[:PREVIEW_MAX]]
    return json_answer(RedriveSettled(False, len(found), 0, [], first, []))


def payload_of(body: RedriveBody) -> bytes | None:
    if body.payload is UNSET and body.payload_base64 is UNSET:
        return None
    given = MessageBody(payload=body.payload, payload_base64=body.payload_base64)
    payload = outgoing_of(given, None).payload
    if payload is None:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "payload is null: a redriven dead letter needs one; leave it out to keep the original",
        )
    return payload


# -- conversion -------------------------------------------------------------------------------


def _topic(request: Request) -> str:
    name: str = request.path_params["name"]
    return name


def _queried(request: Request) -> DeadLetterFilter:
    """Returns the filter of the query's parameters."""
    known = {field.name for field in msgspec.structs.fields(DeadLetterSelection)}
    given: dict[str, Any] = {
        name: value for name, value in request.query_params.items() if name in known
    }
    if "letters" in given:
        given["letters"] = given["letters"].split(",")
    try:
        return filter_of(msgspec.convert(given, DeadLetterSelection, strict=False))
    except msgspec.ValidationError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None


def filter_of(chosen: DeadLetterSelection) -> DeadLetterFilter:
    value = chosen.header_value
    offsets = None
    if chosen.source_from is not None or chosen.source_until is not None:
        offsets = chosen.source_from or 0, chosen.source_until
    return DeadLetterFilter(
        ids=frozenset(map(_dead_letter_id, chosen.letters)),
        error_class=chosen.error_class,
        error_text=chosen.error_text,
        error_template=chosen.error_template,
        key=None if chosen.key is None else chosen.key.encode(),
        header=(chosen.header, None if value is None else value.encode())
        if chosen.header is not None
        else None,
        failed_from_ms=chosen.failed_from_ms,
        failed_until_ms=chosen.failed_until_ms,
        source_topic=chosen.source_topic,
        source_partition=chosen.source_partition,
        source_offsets=offsets,
        group=chosen.group,
        redrives_max=chosen.redrives_max,
    )


def _dead_letter_id(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal() and len(text) <= 30):
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"invalid dead letter {text[:40]!r}: use PARTITION:OFFSET"
        )
    return int(partition), int(offset)


def _dead_letter_answer(dead_letter: DeadLetterMessage) -> DeadLetterAnswer:
    message = message_answer(
        dead_letter.topic,
        dead_letter.partition,
        dead_letter.offset,
        dead_letter.timestamp_ms,
        dead_letter.key,
        dead_letter.payload,
        dead_letter.own_headers,
    )
    source = dead_letter.source
    return DeadLetterAnswer(
        dead_letter.id,
        dead_letter.error_class,
        dead_letter.error_message,
        dead_letter.group,
        dead_letter.attempts,
        dead_letter.first_failure_ms,
        dead_letter.last_failure_ms,
        dead_letter.redrives,
        None if source is None else PlaceAnswer(*source),
        dead_letter.source_timestamp_ms,
        message,
        dead_letter.traceback,
    )


def _settled_answer(report: RedriveReport) -> RedriveSettled:
    targets = [
        TargetAnswer(where.topic, where.partition, count)
        for where, count in sorted(report.targets.items())
    ]
    too_large = list(report.too_large)
    return RedriveSettled(True, report.settled, report.skipped, targets, [], too_large)


FILTERS = (
    Parameter("letters", "only these dead letters, as in 0:15,1:3"),
    Parameter("error_class", "only this error class; wildcards * and ? are allowed"),
    Parameter("error_text", "only error messages that contain this text"),
    Parameter(
        "error_template",
        "only error messages with these words, where <*> stands for any; numbers, ids and quoted "
        "texts are <*>, too",
    ),
    Parameter("key", "only messages with this key"),
    Parameter("header", "only messages with this header"),
    Parameter("header_value", "value of that header"),
    Parameter("failed_from_ms", "only failures at or after this time", "integer"),
    Parameter("failed_until_ms", "only failures before this time", "integer"),
    Parameter("source_topic", "only from this source topic"),
    Parameter("source_partition", "only from this source partition", "integer"),
    Parameter("source_from", "only from this source offset on", "integer"),
    Parameter("source_until", "only from before this source offset", "integer"),
    Parameter("group", "only dead-lettered by this group"),
    Parameter("redrives_max", "only redriven at most this many times", "integer"),
)

ENDPOINTS = (
    RestEndpoint(
        "GET",
        "/dlq",
        "list dead-letter topics with the number and age of their open dead letters",
        list_dead_letter_topics,
        answer=DeadLetterTopicsAnswer,
        refusals=(503,),
    ),
    RestEndpoint(
        "GET",
        "/dlq/{name}",
        "list the open dead letters of a topic",
        list_dead_letters,
        parameters=(*FILTERS, Parameter("limit", "maximum number", "integer", LIST_DEFAULT)),
        answer=DeadLettersAnswer,
        refusals=(403, 404, 503),
    ),
    RestEndpoint(
        "GET",
        "/dlq/{name}/stats",
        "count the open dead letters of a topic by error, template, key, group, source or redrives",
        count_dead_letters,
        parameters=(*FILTERS, Parameter("by", f"one of {', '.join(ASPECTS)}", default="error")),
        answer=KindsAnswer,
        refusals=(403, 404, 503),
    ),
    RestEndpoint(
        "GET",
        "/dlq/{name}/letters/{letter}",
        "show a dead letter",
        show_dead_letter,
        answer=DeadLetterAnswer,
        refusals=(403, 404, 503),
    ),
    RestEndpoint(
        "POST",
        "/dlq/{name}/redrive",
        "redrive dead letters to their source topics, each exactly once",
        redrive,
        body=RedriveBody,
        answer=RedriveSettled,
        description=(
            "Responds when all is done. Disconnecting stops it, and repeating the request "
            "continues with the rest. With background=true it responds with 202 and a task at "
            "once: see /dlq/{name}/tasks."
        ),
        refusals=(403, 404, 503),
    ),
    RestEndpoint(
        "POST",
        "/dlq/{name}/purge",
        "settle dead letters without redriving them",
        purge,
        body=PurgeBody,
        answer=RedriveSettled,
        refusals=(403, 404, 503),
    ),
)
