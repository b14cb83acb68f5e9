"""Security headers for browsers on every response of the HTTP port, whichever layer made it.

They keep browsers from sniffing data as a page, showing it in a frame, or loading anything for it;
over TLS they require TLS for later visits (HSTS). Responses of the layers below the application,
such as a 400 for a malformed request, have them, too. A response's own header of the same name
wins: pages allow their own scripts and styles.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

Rows = list[tuple[bytes, bytes]]
POLICY = b"default-src 'none'; frame-ancestors 'none'"


def headers_of(hsts_seconds: int | None = None) -> Rows:
    """Returns the headers. `hsts_seconds`: time for which browsers must use TLS; None: no TLS."""
    rows = [
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"content-security-policy", POLICY),
    ]
    if hsts_seconds is not None:
        rows.append((b"strict-transport-security", b"max-age=%d" % hsts_seconds))
    return rows


class DefaultHeaders:
    """Wraps the application for one request so that no header is sent twice."""

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
