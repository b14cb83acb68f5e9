"""Dead letters: which topics of them there are, the letters, sending them back, purging them.

A letter is named by its partition and offset among the dead letters, as in `0:15`. It is shown as
any message, with what is known of its end beside it. Redriving and purging answer when all is done;
whoever hangs up stops them, and asking again goes on from there. A redrive in the background
answers at once, with the name of a task (`errands`).
"""

from collections.abc import Coroutine
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation
from penstock.client.dead_letters.message import DeadLetterFilter, DeadLetterMessage
from penstock.client.dead_letters.redrive import RedriveReport
from penstock.client.dead_letters.topics import ASPECTS
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
from penstock.gateway.rest.background_jobs import errand_answer
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
    """Which letters are meant: those that agree with everything that is given."""

    letters: list[str] = []
    error_class: str = ""
    """With * and ? as in file names."""
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


class RedriveBody(DeadLetterSelection, forbid_unknown_fields=True, kw_only=True):
    """`to`: another topic than each came from. A payload replaces that of the one letter named."""

    to: str | None = None
    limit: int = DEAD_LETTERS_MAX
    rate: float | None = None
    """Letters a second, at most."""
    dry_run: bool = False
    background: bool = False
    """Answers at once, with a task to look at; else when all is done."""
    payload: Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class PurgeBody(DeadLetterSelection, forbid_unknown_fields=True, kw_only=True):
    """`all` must be true where nothing is chosen."""

    all: bool = False
    limit: int = DEAD_LETTERS_MAX
    dry_run: bool = False


class BoxAnswer(Struct):
    topic: str
    partitions: int
    letters: int
    oldest_ms: int | None


class BoxesAnswer(Struct):
    topics: list[BoxAnswer]


class PlaceAnswer(Struct):
    topic: str
    partition: int
    offset: int


class LetterAnswer(Struct):
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


class LettersAnswer(Struct):
    letters: list[LetterAnswer]
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
    """`skipped` are dead-lettered messages whose record was lost before it was copied,
    `too_large` those (by id) that their topic does not take: they stay."""

    executed: bool
    letters: int
    skipped: int
    targets: list[TargetAnswer]
    first: list[LetterAnswer]
    """In a dry run, some of those that are meant."""
    too_large: list[str]


# -- looking ----------------------------------------------------------------------------------


async def list_boxes(gateway: Gateway, request: Request) -> Response:
    found = await gateway.dead_letters.boxes(principal_of(request))
    rows = [BoxAnswer(box.topic, box.partitions, box.messages, box.oldest_ms) for box in found]
    return json_answer(BoxesAnswer(rows))


async def list_letters(gateway: Gateway, request: Request) -> Response:
    limit = integer(request, "limit", LIST_DEFAULT, 1, LIST_MAX)
    work = gateway.dead_letters.some(
        principal_of(request), _topic(request), _queried(request), limit
    )
    found, has_more = await while_connected(request, work)
    return json_answer(LettersAnswer([_letter_answer(one) for one in found], has_more))


async def show_letter(gateway: Gateway, request: Request) -> Response:
    name = request.path_params["letter"]
    chosen = filter_of(DeadLetterSelection(letters=[name]))
    found, _ = await gateway.dead_letters.some(principal_of(request), _topic(request), chosen, 1)
    if not found:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"letter {name} is not there, or was settled"
        )
    return json_answer(_letter_answer(found[0]))


async def count_letters(gateway: Gateway, request: Request) -> Response:
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
        errand, task = gateway.background_jobs.start(topic, "redrive", work)
        waits: WaitingRequests = request.app.state.waits
        waits.add(task)
        return json_answer(errand_answer(errand), ACCEPTED)
    return json_answer(_settled_answer(await while_connected(request, work(ignore_progress))))


async def purge(gateway: Gateway, request: Request) -> Response:
    body = await read_json(request, PurgeBody)
    chosen = filter_of(body)
    if not body.all and not chosen.described():
        raise Refused(ErrorCode.INVALID_REQUEST, "purge all letters? say so with all, or choose")
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
    first = [_letter_answer(one) for one in found[:PREVIEW_MAX]]
    return json_answer(RedriveSettled(False, len(found), 0, [], first, []))


def payload_of(body: RedriveBody) -> bytes | None:
    if body.payload is UNSET and body.payload_base64 is UNSET:
        return None
    given = MessageBody(payload=body.payload, payload_base64=body.payload_base64)
    payload = outgoing_of(given, None).payload
    if payload is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "a letter is not sent back without a payload")
    return payload


# -- reading and showing ----------------------------------------------------------------------


def _topic(request: Request) -> str:
    name: str = request.path_params["name"]
    return name


def _queried(request: Request) -> DeadLetterFilter:
    """The filter that the query's parameters describe."""
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
        ids=frozenset(map(_letter_id, chosen.letters)),
        error_class=chosen.error_class,
        error_text=chosen.error_text,
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


def _letter_id(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal() and len(text) <= 30):
        raise Refused(ErrorCode.INVALID_REQUEST, f"{text[:40]} is no letter: PARTITION:OFFSET")
    return int(partition), int(offset)


def _letter_answer(letter: DeadLetterMessage) -> LetterAnswer:
    message = message_answer(
        letter.topic,
        letter.partition,
        letter.offset,
        letter.timestamp_ms,
        letter.key,
        letter.payload,
        letter.own_headers,
    )
    source = letter.source
    return LetterAnswer(
        letter.id,
        letter.error_class,
        letter.error_message,
        letter.group,
        letter.attempts,
        letter.first_failure_ms,
        letter.last_failure_ms,
        letter.redrives,
        None if source is None else PlaceAnswer(*source),
        letter.source_timestamp_ms,
        message,
    )


def _settled_answer(report: RedriveReport) -> RedriveSettled:
    targets = [
        TargetAnswer(where.topic, where.partition, count)
        for where, count in sorted(report.targets.items())
    ]
    too_large = list(report.too_large)
    return RedriveSettled(True, report.settled, report.skipped, targets, [], too_large)


FILTERS = (
    Parameter("letters", "only these, as 0:15,1:3"),
    Parameter("error_class", "only of this error class; * and ? allowed"),
    Parameter("error_text", "only with this in the error message"),
    Parameter("key", "only with this key"),
    Parameter("header", "only with this header of the message"),
    Parameter("header_value", "and this value of it"),
    Parameter("failed_from_ms", "only failed at or after this time", "integer"),
    Parameter("failed_until_ms", "only failed before this time", "integer"),
    Parameter("source_topic", "only from this topic"),
    Parameter("source_partition", "only from this partition", "integer"),
    Parameter("source_from", "only from this offset on", "integer"),
    Parameter("source_until", "only from before this offset", "integer"),
    Parameter("group", "only given up by this group"),
    Parameter("redrives_max", "leave out what came back more often", "integer"),
)

ENDPOINTS = (
    RestEndpoint(
        "GET",
        "/dlq",
        "list topics of dead letters, how many are open in each, and since when",
        list_boxes,
        answer=BoxesAnswer,
        refusals=(503,),
    ),
    RestEndpoint(
        "GET",
        "/dlq/{name}",
        "list open letters of a topic of dead letters",
        list_letters,
        parameters=(*FILTERS, Parameter("limit", "at most so many", "integer", LIST_DEFAULT)),
        answer=LettersAnswer,
        refusals=(403, 404, 503),
    ),
    RestEndpoint(
        "GET",
        "/dlq/{name}/stats",
        "count open letters by what they have in common",
        count_letters,
        parameters=(*FILTERS, Parameter("by", f"one of {', '.join(ASPECTS)}", default="error")),
        answer=KindsAnswer,
        refusals=(403, 404, 503),
    ),
    RestEndpoint(
        "GET",
        "/dlq/{name}/letters/{letter}",
        "show one letter",
        show_letter,
        answer=LetterAnswer,
        refusals=(403, 404, 503),
    ),
    RestEndpoint(
        "POST",
        "/dlq/{name}/redrive",
        "send letters back to where they came from, each exactly once",
        redrive,
        body=RedriveBody,
        answer=RedriveSettled,
        description=(
            "Answers when all is done; hanging up stops it, and asking again goes on from there. "
            "With background=true it answers 202 at once, with a task: see /dlq/{name}/tasks."
        ),
        refusals=(403, 404, 503),
    ),
    RestEndpoint(
        "POST",
        "/dlq/{name}/purge",
        "settle letters without sending them back",
        purge,
        body=PurgeBody,
        answer=RedriveSettled,
        refusals=(403, 404, 503),
    ),
)
