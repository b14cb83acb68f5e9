"""Pipelines: the last report of each stage, from the status topic.

A stage writes records with the key `PIPELINE/STAGE` and a JSON value. The newest record of each key
counts; other values are ignored.

Bounds: the last `REPORTS_MAX` reports of each partition are read.
"""

from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.http.request_io import json_answer, principal_of

TOPIC = "__pipelines"
REPORTS_MAX = 2_000


class StageRow(Struct):
    pipeline: str
    stage: str
    state: str = ""
    batch: int | None = None
    rows_in: int | None = None
    rows_out: int | None = None
    bad_rows: int | None = None
    lag: int | None = None
    updated_ms: int | None = None
    error: str | None = None
    source: str = ""
    target: str = ""
    group: str = ""
    dlq: str = ""
    """Topic of rows that could not be processed."""
    expectations: dict[str, dict[str, int]] = {}
    """Rows that passed and failed, by expectation."""


class PipelinesAnswer(Struct):
    has_topic: bool
    stages: list[StageRow]


async def list_pipelines(console: Console, request: Request) -> Response:
    principal, browser = principal_of(request), console.browser
    if TOPIC not in console.ctx.image.topics:
        return json_answer(PipelinesAnswer(False, []))
    topic = browser.topic(principal, TOPIC)
    begins, ends = await browser.bounds(principal, topic, None)
    starts = {at: max(begins[at], end - REPORTS_MAX) for at, end in ends.items()}
    found, _ = await browser.read(principal, topic, starts, ends, REPORTS_MAX)
    found.sort(key=lambda one: (one.timestamp, one.partition, one.offset))
    newest: dict[bytes, StageRow | None] = {}
    for message in found:
        if message.key is not None:
            newest[message.key] = _stage(message.value)
    stages = [stage for stage in newest.values() if stage is not None]
    stages.sort(key=lambda stage: stage.pipeline)  # Stable: stages keep their order.
    return json_answer(PipelinesAnswer(True, stages))


def _stage(value: bytes | None) -> StageRow | None:
    """Decodes a report; None if it was removed or is malformed."""
    if value is None:
        return None
    try:
        given: dict[str, Any] = msgspec.json.decode(value, type=dict[str, Any])
        return msgspec.convert(given, StageRow, strict=False)
    except msgspec.MsgspecError:
        return None


ROWS = (
    ConsoleRow("GET", "/pipelines", "list the last reports of pipeline stages", list_pipelines),
)
