"""Settling of messages polled from a queue: ack, nack, reject, extend, by receipt.

One as `{"receipt": ...}`, several as `{"receipts": [...]}`, or each with its own values as
`{"messages": [{"receipt": ...}, ...]}`. Each is settled on its own: status 207 says that some
failed, and `errors` lists them. The same routes exist below a topic, for convenience.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.core.gateway import Gateway, SettleAction, Settlement
from penstock.gateway.http.problems import entry_of, problem
from penstock.gateway.http.request_io import json_answer, principal_of, read_json
from penstock.gateway.rest.endpoint import RestEndpoint

MULTI_STATUS = 207


class AckEntry(Struct, forbid_unknown_fields=True):
    receipt: str


class AckBody(Struct, forbid_unknown_fields=True):
    """One receipt, several, or entries."""

    receipt: str | UnsetType = UNSET
    receipts: list[str] | UnsetType = UNSET
    messages: list[AckEntry] | UnsetType = UNSET


class NackEntry(Struct, forbid_unknown_fields=True):
    receipt: str
    delay_ms: int | None = None
    error: str | None = None
    error_class: str | None = None
    traceback: str | None = None


class NackBody(Struct, forbid_unknown_fields=True):
    """Receipts, and the delay of the redelivery: `delay_ms`, or the retry policy's."""

    receipt: str | UnsetType = UNSET
    receipts: list[str] | UnsetType = UNSET
    messages: list[NackEntry] | UnsetType = UNSET
    delay_ms: int | None = None
    error: str | None = None
    error_class: str | None = None
    traceback: str | None = None


class RejectEntry(Struct, forbid_unknown_fields=True):
    receipt: str
    error: str | None = None
    error_class: str | None = None
    traceback: str | None = None


class RejectBody(Struct, forbid_unknown_fields=True):
    """Receipts, and the reason: `error`, `error_class` for grouping, and `traceback`."""

    receipt: str | UnsetType = UNSET
    receipts: list[str] | UnsetType = UNSET
    messages: list[RejectEntry] | UnsetType = UNSET
    error: str | None = None
    error_class: str | None = None
    traceback: str | None = None


class ExtendEntry(Struct, forbid_unknown_fields=True):
    receipt: str
    lock_ms: int | None = None


class ExtendBody(Struct, forbid_unknown_fields=True):
    """Receipts, and the new duration of the leases: `lock_ms`, or the group's config."""

    receipt: str | UnsetType = UNSET
    receipts: list[str] | UnsetType = UNSET
    messages: list[ExtendEntry] | UnsetType = UNSET
    lock_ms: int | None = None


class SettledError(Struct):
    """Error of one of several receipts."""

    index: int
    receipt: str
    status: int
    code: str
    detail: str


class SettledAnswer(Struct):
    """Number of settled messages, and the errors of the others."""

    settled: int
    errors: list[SettledError] = []


Body: TypeAlias = AckBody | NackBody | RejectBody | ExtendBody
Entry: TypeAlias = AckEntry | NackEntry | RejectEntry | ExtendEntry


def _handler(
    kind: type[Body], action: SettleAction
) -> Callable[[Gateway, Request], Awaitable[Response]]:
    async def settle(gateway: Gateway, request: Request) -> Response:
        body = await read_json(request, kind)
        settlements = _settlements(body, action)
        answers = await gateway.settle(principal_of(request), settlements)
        errors = [
            {"index": at, "receipt": one.receipt, **entry_of(answer)}
            for at, (one, answer) in enumerate(zip(settlements, answers, strict=True))
            if answer is not None
        ]
        refused = [answer for answer in answers if answer is not None]
        if len(refused) == len(answers) and len({one.code for one in refused}) == 1:
            return problem(refused[0], errors=errors)
        settled = len(answers) - len(refused)
        return json_answer({"settled": settled, "errors": errors}, MULTI_STATUS if refused else 200)

    return settle


def _settlements(body: Body, action: SettleAction) -> list[Settlement]:
    receipt, receipts, messages = body.receipt, body.receipts, body.messages
    given = [value for value in (receipt, receipts, messages) if value is not UNSET]
    if len(given) != 1 or not given[0]:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "missing receipt: send exactly one of receipt (a string), receipts (a list) or "
            "messages (a list)",
        )
    if isinstance(messages, list):
        return [_settlement(entry.receipt, entry, action) for entry in messages]
    several = receipts if isinstance(receipts, list) else [str(receipt)]
    return [_settlement(one, body, action) for one in several]


def _settlement(receipt: str, values: Body | Entry, action: SettleAction) -> Settlement:
    return Settlement(
        receipt,
        action,
        delay_ms=getattr(values, "delay_ms", None),
        error_class=getattr(values, "error_class", None),
        error_message=getattr(values, "error", None),
        lock_ms=getattr(values, "lock_ms", None),
        traceback=getattr(values, "traceback", None),
    )


_ROWS: tuple[tuple[str, type[Body], SettleAction, str], ...] = (
    ("ack", AckBody, SettleAction.ACCEPT, "acknowledge messages: they are finished"),
    (
        "nack",
        NackBody,
        SettleAction.RELEASE,
        "redeliver messages after `delay_ms`, or the retry policy's backoff",
    ),
    ("reject", RejectBody, SettleAction.REJECT, "dead-letter messages, with `error`"),
    (
        "extend",
        ExtendBody,
        SettleAction.EXTEND,
        "extend the leases to `lock_ms` from now",
    ),
)

ENDPOINTS = tuple(
    RestEndpoint(
        "POST",
        path + name,
        summary,
        _handler(kind, action),
        body=kind,
        answer=SettledAnswer,
        description=(
            "Status 409: the lease has expired, or the message was settled before. Status 504: the "
            "leader changed meanwhile, and it is unknown whether the message was settled. Status "
            "207: some of several messages were not settled, see `errors`."
        ),
        refusals=(403, 404, 409, 422, 503, 504),
    )
    for path in ("/", "/topics/{name}/")
    for name, kind, action, summary in _ROWS
)
