"""Messages of a topic: pages, single messages, search, live tail."""

from collections.abc import AsyncIterator

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import Corrupt, ErrorCode, PeerError, Refused
from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.message_pages import (
    PAGE_MAX,
    PARTITIONS_MAX,
    Browser,
    MessagePage,
    PageOffsets,
)
from penstock.gateway.console.message_search import (
    PLACES,
    SearchCriteria,
    SearchProgress,
    matcher_of,
)
from penstock.gateway.console.record_view import ShownMessage, show_message
from penstock.gateway.console.visibility import visibility_of
from penstock.gateway.core.cluster_types import TopicImage
from penstock.gateway.core.permissions import Principal
from penstock.gateway.http.request_io import (
    choice,
    flag,
    integer,
    json_answer,
    optional_integer,
    optional_text,
    principal_of,
    text,
    while_connected,
)
from penstock.gateway.http.server_sent_events import KEEP_ALIVE, EventStream, event

LIMIT_DEFAULT = 50
OFFSET_MAX = 1 << 62
PARTITION_MAX = 1 << 31
BUDGET_DEFAULT, BUDGET_MAX = 100_000, 2_000_000
FOUND_MAX = 500
LATEST, EARLIEST, OFFSET, TIME = "latest", "earliest", "offset", "time"


class PageAnswer(Struct):
    messages: list[ShownMessage]
    older: str
    """Cursor for `before`; empty if there are no older messages."""
    newer: str
    """Cursor for `after`."""
    total: int
    """Number of offsets between start and end: roughly the number of messages."""
    is_cut: bool
    partitions: int
    partitions_shown: int


class SearchAnswer(Struct):
    scanned: int
    total: int
    size_bytes: int
    found: int
    ended: str
    messages: list[ShownMessage]


async def list_messages(console: Console, request: Request) -> Response:
    principal, browser = principal_of(request), console.browser
    topic = browser.topic(principal, request.path_params["name"])
    limit = integer(request, "limit", LIMIT_DEFAULT, 1, PAGE_MAX)
    begins, ends = await browser.bounds(principal, topic, _partition(request))
    page = await while_connected(
        request, _page(browser, request, principal, topic, begins, ends, limit)
    )
    return json_answer(
        PageAnswer(
            [await show_message(one, console.decoder) for one in page.messages],
            write_cursor(page.older),
            write_cursor(page.newer),
            sum(ends[at] - begin for at, begin in begins.items()),
            page.is_cut,
            len(topic.partitions),
            min(len(ends), PARTITIONS_MAX),
        )
    )


async def _page(
    browser: Browser,
    request: Request,
    principal: Principal,
    topic: TopicImage,
    begins: PageOffsets,
    ends: PageOffsets,
    limit: int,
) -> MessagePage:
    before, after = optional_text(request, "before"), optional_text(request, "after")
    if before:
        cursor = read_cursor(before)
        upto = {at: min(max(cursor.get(at, end), begins[at]), end) for at, end in ends.items()}
        return await browser.backward(principal, topic, begins, upto, limit)
    if after:
        return await browser.forward(principal, topic, begins, ends, read_cursor(after), limit)
    starts = await _starts(browser, request, principal, topic, begins, ends)
    if starts is None:
        return await browser.backward(principal, topic, begins, ends, limit)
    return await browser.forward(principal, topic, begins, ends, starts, limit)


async def _starts(
    browser: Browser,
    request: Request,
    principal: Principal,
    topic: TopicImage,
    begins: PageOffsets,
    ends: PageOffsets,
) -> PageOffsets | None:
    """Returns the start offsets; None: backward from the end."""
    match choice(request, "from", LATEST, EARLIEST, OFFSET, TIME):
        case "earliest":
            return begins
        case "offset":
            return dict.fromkeys(begins, integer(request, "offset", 0, 0, OFFSET_MAX))
        case "time":
            at_ms = integer(request, "time_ms", 0, 0, 1 << 50)
            return {**ends, **await browser.at_time(principal, topic, at_ms)}
    return None


async def show_one(console: Console, request: Request) -> Response:
    principal, browser = principal_of(request), console.browser
    topic = browser.topic(principal, request.path_params["name"])
    partition, offset = (_number(request, name) for name in ("partition", "offset"))
    if partition >= len(topic.partitions):
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {partition} does not exist: {topic.name} has partitions 0 to "
            f"{len(topic.partitions) - 1}",
        )
    message = await browser.one(principal, topic, partition, offset)
    return json_answer(await show_message(message, console.decoder, whole=True))


async def search(console: Console, request: Request) -> Response:
    principal, browser = principal_of(request), console.browser
    topic = browser.topic(principal, request.path_params["name"])
    places = [place for place in PLACES if flag(request, place, True)]
    wanted = SearchCriteria(
        matcher_of(text(request, "text"), places, is_pattern=flag(request, "pattern")),
        integer(request, "budget", BUDGET_DEFAULT, 1, BUDGET_MAX),
        integer(request, "limit", PAGE_MAX, 1, FOUND_MAX),
        choice(request, "from", LATEST, EARLIEST, OFFSET, TIME) == LATEST,
    )
    begins, ends = await browser.bounds(principal, topic, _partition(request))
    starts = await _starts(browser, request, principal, topic, begins, ends)
    chosen = {
        at: min(max(begin, (starts or begins).get(at, begin)), ends[at])
        for at, begin in begins.items()
    }
    steps = console.searches.run(principal, topic, chosen, ends, wanted)
    return EventStream(_progress(console, steps), request.app.state.waits)


async def _progress(console: Console, steps: AsyncIterator[SearchProgress]) -> AsyncIterator[bytes]:
    yield KEEP_ALIVE
    try:
        async for step in steps:
            shown = [await show_message(one, console.decoder) for one in step.found]
            answer = SearchAnswer(
                step.scanned, step.total, step.size_bytes, step.found_count, step.ended, shown
            )
            yield event("progress", "", answer)
    except Refused as refused:
        yield event("problem", "", {"detail": refused.message or refused.code.name})
    except (PeerError, OSError, Corrupt) as error:
        yield event("problem", "", {"detail": str(error)})
    finally:
        await steps.aclose()  # type: ignore[attr-defined]  # It is a generator.


async def tail(console: Console, request: Request) -> Response:
    visibility = visibility_of(console.ctx, request)
    topic = console.browser.topic(visibility.principal, request.path_params["name"])
    console.tails.check(visibility, topic)
    return EventStream(console.tails.watch(visibility, topic), request.app.state.waits)


# -- parameters -------------------------------------------------------------------------------


def _partition(request: Request) -> int | None:
    return optional_integer(request, "partition", 0, PARTITION_MAX)


def _number(request: Request, name: str) -> int:
    value: str = request.path_params[name]
    if not (value.isascii() and value.isdigit() and len(value) < len(str(OFFSET_MAX))):
        raise Refused(ErrorCode.INVALID_REQUEST, f"invalid {name} {value[:40]!r}: must be a number")
    return int(value)


def write_cursor(offsets: PageOffsets) -> str:
    return ",".join(f"{at}:{offset}" for at, offset in sorted(offsets.items()))


def read_cursor(cursor: str) -> PageOffsets:
    found: PageOffsets = {}
    for part in cursor.split(",")[: PARTITIONS_MAX + 1]:
        at, _, offset = part.partition(":")
        if not (at.isdecimal() and offset.isdecimal() and len(part) < 40):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"invalid cursor {part[:40]!r}: must be PARTITION:OFFSET",
            )
        found[int(at)] = int(offset)
    return found


ROWS = (
    ConsoleRow("GET", "/topics/{name}/messages", "list a page of messages", list_messages),
    ConsoleRow(
        "GET",
        "/topics/{name}/messages/{partition}/{offset}",
        "show a message in full",
        show_one,
    ),
    ConsoleRow(
        "GET",
        "/topics/{name}/search",
        "search messages, with progress as server-sent events",
        search,
    ),
    ConsoleRow("GET", "/topics/{name}/tail", "stream new messages as server-sent events", tail),
)
