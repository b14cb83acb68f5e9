"""Size limits of request bodies, single and in all.

One body: what the largest message of any topic takes as base64 in JSON, and `BODY_BYTES_MAX` more.
All bodies being received or handled: `BODIES_BYTES_MAX`; beyond it requests get a 503. One user, or
one address of anonymous clients, may hold `HOLDER_BYTES_MAX` of that, or one body of the largest
size. With authorization enabled, all requests that are not authenticated by their header (AWS
signatures cover the body) may hold `ANONYMOUS_BYTES_MAX` together, and leave the rest to others.
"""

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_pool import FairPool
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.problems import PRINCIPAL, problem
from penstock.gateway.http.request_io import peer_of

BODY_BYTES_MAX = 4 << 20
BODIES_BYTES_MAX = 256 << 20
HOLDER_BYTES_MAX = 64 << 20
ANONYMOUS_BYTES_MAX = 64 << 20
TOO_LARGE, NOT_AVAILABLE = 413, 503
CROWDED = "too many large requests at once: retry later"


class BodyLimit:
    """Middleware that limits request bodies."""

    def __init__(self, app: ASGIApp, gateway: Gateway | None) -> None:
        self._app = app
        self._gateway = gateway
        self.shares = FairPool(BODIES_BYTES_MAX, min(HOLDER_BYTES_MAX, BODIES_BYTES_MAX))
        """Bytes held by the bodies of all running requests."""
        self.anonymous_bytes = 0

    @property
    def bytes_max(self) -> int:
        if self._gateway is None:
            return BODY_BYTES_MAX
        return BODY_BYTES_MAX + self._gateway.message_bytes_max * 4 // 3

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bytes_max, received, taken = self.bytes_max, 0, 0
        is_anonymous = self._is_anonymous(scope)
        holder = str(scope[PRINCIPAL]) if PRINCIPAL in scope else peer_of(scope)
        # A body within the limit of one body must fit into its holder's share.
        self.shares.holder_max = max(self.shares.holder_max, min(bytes_max, self.shares.total_max))
        if _length_of(scope) > bytes_max:
            why = f"the request body exceeds {bytes_max} bytes: send fewer messages at a time"
            await problem(Refused(ErrorCode.MESSAGE_TOO_LARGE, why))(scope, receive, send)
            return

        async def receive_some() -> Message:
            nonlocal received, taken
            message = await receive()
            size = len(message.get("body", b""))
            received += size
            if received > bytes_max:
                raise HTTPException(TOO_LARGE)
            if is_anonymous and self.anonymous_bytes + size > ANONYMOUS_BYTES_MAX:
                raise HTTPException(NOT_AVAILABLE, CROWDED)
            if size:
                if not self.shares.take(holder, size):
                    raise HTTPException(NOT_AVAILABLE, CROWDED)
                taken += size
                self.anonymous_bytes += size if is_anonymous else 0
            return message

        try:
            await self._app(scope, receive_some, send)
        finally:
            if taken:
                self.shares.give(holder, taken)
                self.anonymous_bytes -= taken if is_anonymous else 0

    def _is_anonymous(self, scope: Scope) -> bool:
        return (
            self._gateway is not None
            and self._gateway.ctx.authorizer.is_on
            and PRINCIPAL not in scope
        )


def _length_of(scope: Scope) -> int:
    """Returns the request's content-length; 0 if it has none."""
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else 0
