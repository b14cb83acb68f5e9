"""Settling what was polled from a queue: ack, nack, reject, extend, by receipt.

One as `{"receipt": ...}`, several as `{"receipts": [...]}`, or each with values of its own as
`{"messages": [{"receipt": ...}, ...]}`. Each counts on its own: status 207 says that some do not,
and `errors` says which. The same routes exist below a topic, for whoever likes it so.
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
    """A receipt, several, or entries."""

    receipt: str | UnsetType = UNSET
    receipts: list[str] | UnsetType = UNSET
    messages: list[AckEntry] | UnsetType = UNSET


class NackEntry(Struct, forbid_unknown_fields=True):
    receipt: str
    delay_ms: int | None = None
    error: str | None = None
    error_class: str | None = None


class NackBody(Struct, forbid_unknown_fields=True):
    """Receipts, and when to try again: `delay_ms`, or as the retry policy says."""

    receipt: str | UnsetType = UNSET
    receipts: list[str] | UnsetType = UNSET
    messages: list[NackEntry] | UnsetType = UNSET
    delay_ms: int | None = None
    error: str | None = None
    error_class: str | None = None


class RejectEntry(Struct, forbid_unknown_fields=True):
    receipt: str
    error: str | None = None
    error_class: str | None = None


class RejectBody(Struct, forbid_unknown_fields=True):
    """Receipts, and why: `error`, and `error_class` to group by."""

    receipt: str | UnsetType = UNSET
    receipts: list[str] | UnsetType = UNSET
    messages: list[RejectEntry] | UnsetType = UNSET
    error: str | None = None
    error_class: str | None = None


class ExtendEntry(Struct, forbid_unknown_fields=True):
    receipt: str
    lock_ms: int | None = None


class ExtendBody(Struct, forbid_unknown_fields=True):
    """Receipts, and for how long from now: `lock_ms`, or as the group's config says."""

    receipt: str | UnsetType = UNSET
    receipts: list[str] | UnsetType = UNSET
    messages: list[ExtendEntry] | UnsetType = UNSET
    lock_ms: int | None = None


class SettledError(Struct):
    """Which of several does not count, and why."""

    index: int
    receipt: str
    status: int
    code: str
    detail: str


class SettledAnswer(Struct):
    """How many count, and those that do not."""

    settled: int
    errors: list[SettledError] = []


Body: TypeAlias = AckBody | NackBody | RejectBody | ExtendBody
Entry: TypeAlias = AckEntry | NackEntry | RejectEntry | ExtendEntry


def _settling(
    kind: type[Body], verdict: SettleAction
) -> Callable[[Gateway, Request], Awaitable[Response]]:
    async def settle(gateway: Gateway, request: Request) -> Response:
        body = await read_json(request, kind)
        settlements = _settlements(body, verdict)
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


def _settlements(body: Body, verdict: SettleAction) -> list[Settlement]:
    receipt, receipts, messages = body.receipt, body.receipts, body.messages
    given = [value for value in (receipt, receipts, messages) if value is not UNSET]
    if len(given) != 1 or not given[0]:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "one of receipt (a text), receipts (a list) or messages (a list) is required",
        )
    if isinstance(messages, list):
        return [_settlement(entry.receipt, entry, verdict) for entry in messages]
    several = receipts if isinstance(receipts, list) else [str(receipt)]
    return [_settlement(one, body, verdict) for one in several]


def _settlement(receipt: str, values: Body | Entry, verdict: SettleAction) -> Settlement:
    return Settlement(
        receipt,
        verdict,
        delay_ms=getattr(values, "delay_ms", None),
        error_class=getattr(values, "error_class", None),
        error_message=getattr(values, "error", None),
        lock_ms=getattr(values, "lock_ms", None),
    )


_ROWS: tuple[tuple[str, type[Body], SettleAction, str], ...] = (
    ("ack", AckBody, SettleAction.ACCEPT, "done: these messages are finished"),
    (
        "nack",
        NackBody,
        SettleAction.RELEASE,
        "not done: try again, after `delay_ms` or the policy's",
    ),
    ("reject", RejectBody, SettleAction.REJECT, "never: to the dead letters, with `error`"),
    (
        "extend",
        ExtendBody,
        SettleAction.EXTEND,
        "not done yet: hold the lease for `lock_ms` from now",
    ),
)

ENDPOINTS = tuple(
    RestEndpoint(
        "POST",
        path + name,
        summary,
        _settling(kind, verdict),
        body=kind,
        answer=SettledAnswer,
        description=(
            "409 says that the lease has ended: its time was over, or the message was settled "
            "before. Status 207 says that some of several do not count: see `errors`."
        ),
        refusals=(403, 404, 409, 422, 503),
    )
    for path in ("/", "/topics/{name}/")
    for name, kind, verdict, summary in _ROWS
)
