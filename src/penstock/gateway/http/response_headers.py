"""Headers for browsers on every answer of the HTTP port, whichever layer made it.

Data is not to be taken for a page, nor shown in a frame, nor allowed to load anything; over TLS the
browser is to come back over TLS. The rows go out with answers of the application and with those
from below it, such as 400 for what is not a request. An answer that has its own row of a name keeps
that one: pages allow their own scripts and styles.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

Rows = list[tuple[bytes, bytes]]
POLICY = b"default-src 'none'; frame-ancestors 'none'"


def headers_of(hsts_seconds: int | None = None) -> Rows:
    """`hsts_seconds`: how long browsers are to use TLS; None: they came without."""
    rows = [
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"content-security-policy", POLICY),
    ]
    if hsts_seconds is not None:
        rows.append((b"strict-transport-security", b"max-age=%d" % hsts_seconds))
    return rows


class Defaulting:
    """Wraps the application for one request: no row goes out twice."""

    def __init__(self, app: ASGIApp, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle = cycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = self._cycle

        async def send_once(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                rows = cycle.default_headers
                cycle.default_headers = [row for row in rows if row[0] not in own]
            await send(message)

        await self._app(scope, receive, send_once)
