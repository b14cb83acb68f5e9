"""Audit log: its entries, newest first, for those who may read the topic `__audit`.

Bounds: a request reads `ROUNDS_MAX` pages of `PAGE` entries and returns at most `FOUND_MAX`; a
cursor continues where it stopped. Other tasks have the event loop after each page.
"""

import asyncio

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.routes.messages import read_cursor, write_cursor
from penstock.gateway.http.request_io import (
    integer,
    json_answer,
    optional_text,
    principal_of,
    while_connected,
)
from penstock.security.audit_entries import ENTRY, AuditEntry

TOPIC = "__audit"
PAGE = 200
ROUNDS_MAX = 20
FOUND_DEFAULT, FOUND_MAX = 100, 500


class AuditRow(Struct):
    time_ms: int
    node: int
    protocol: str
    principal: str
    peer: str
    action: str
    outcome: str
    resources: list[str]
    more_resources: int
    codes: list[str]
    suppressed: int
    place: str


class AuditAnswer(Struct):
    has_topic: bool
    entries: list[AuditRow]
    older: str
    """Cursor for `before`; empty if there are no older entries."""


async def list_entries(console: Console, request: Request) -> Response:
    if TOPIC not in console.ctx.image.topics:
        return json_answer(AuditAnswer(False, [], ""))
    return json_answer(await while_connected(request, _entries(console, request)))


async def _entries(console: Console, request: Request) -> AuditAnswer:
    principal, browser = principal_of(request), console.browser
    topic = browser.topic(principal, TOPIC)
    outcome = optional_text(request, "outcome")
    text = (optional_text(request, "text") or "").lower()
    limit = integer(request, "limit", FOUND_DEFAULT, 1, FOUND_MAX)
    begins, ends = await browser.bounds(principal, topic, None)
    before = optional_text(request, "before")
    if before:
        cursor = read_cursor(before)
        ends = {at: min(max(cursor.get(at, end), begins[at]), end) for at, end in ends.items()}
    found: list[AuditRow] = []
    for _ in range(ROUNDS_MAX):
        page = await browser.backward(principal, topic, begins, ends, PAGE)
        ends = page.older
        for record in page.messages:
            row = _row(record.value, f"{record.partition}:{record.offset}")
            if row is None or (outcome and row.outcome != outcome):
                continue
            if text and text not in msgspec.json.encode(row).decode().lower():
                continue
            found.append(row)
            if len(found) >= limit:
                ends = {**ends, record.partition: record.offset}
                return AuditAnswer(True, found, write_cursor(ends))
        if not ends:
            break
        await asyncio.sleep(0)
    return AuditAnswer(True, found, write_cursor(ends))


def _row(value: bytes | None, place: str) -> AuditRow | None:
    """Decodes an entry; None if it is malformed."""
    try:
        entry: AuditEntry = ENTRY.decode(value or b"")
    except msgspec.MsgspecError:
        return None
    return AuditRow(
        entry.time_ms,
        entry.node,
        entry.door,
        entry.principal,
        entry.peer,
        entry.action,
        entry.outcome,
        list(entry.resources),
        entry.more_resources,
        list(entry.codes),
        entry.suppressed,
        place,
    )


ROWS = (ConsoleRow("GET", "/audit", "list entries of the audit log, newest first", list_entries),)
