"""How large a request's body may be, and all bodies together.

One body: what the largest message of any topic takes as base64 in JSON, and `BODY_BYTES_MAX` more.
All that are being received or handled: `BODIES_BYTES_MAX`; what comes on top is sent away with 503
until some are done. One user, or one address where nobody has logged in, has `HOLDER_BYTES_MAX` of
that, or what one body may have. Where rights are asked for, those who have not said who they are
(or say it in the body's signature) have `STRANGERS_BYTES_MAX` together, and leave the rest to
others.
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
STRANGERS_BYTES_MAX = 64 << 20
TOO_LARGE, NOT_AVAILABLE = 413, 503
CROWDED = "too many large requests at once: try again"


class BodyLimit:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, gateway: Gateway | None) -> None:
        self._app = app
        self._gateway = gateway
        self.shares = FairPool(BODIES_BYTES_MAX, min(HOLDER_BYTES_MAX, BODIES_BYTES_MAX))
        """What the bodies of all requests under way take."""
        self.strangers_bytes = 0

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
        is_stranger = self._is_stranger(scope)
        holder = str(scope[PRINCIPAL]) if PRINCIPAL in scope else peer_of(scope)
        # Nothing that is allowed alone is too large for ever.
        self.shares.holder_max = max(self.shares.holder_max, min(bytes_max, self.shares.total_max))
        if _length_of(scope) > bytes_max:
            why = f"the body is larger than {bytes_max} bytes: send fewer messages at a time"
            await problem(Refused(ErrorCode.MESSAGE_TOO_LARGE, why))(scope, receive, send)
            return

        async def receive_some() -> Message:
            nonlocal received, taken
            message = await receive()
            size = len(message.get("body", b""))
            received += size
            if received > bytes_max:
                raise HTTPException(TOO_LARGE)
            if is_stranger and self.strangers_bytes + size > STRANGERS_BYTES_MAX:
                raise HTTPException(NOT_AVAILABLE, CROWDED)
            if size:
                if not self.shares.take(holder, size):
                    raise HTTPException(NOT_AVAILABLE, CROWDED)
                taken += size
                self.strangers_bytes += size if is_stranger else 0
            return message

        try:
            await self._app(scope, receive_some, send)
        finally:
            if taken:
                self.shares.give(holder, taken)
                self.strangers_bytes -= taken if is_stranger else 0

    def _is_stranger(self, scope: Scope) -> bool:
        return (
            self._gateway is not None
            and self._gateway.ctx.authorizer.is_on
            and PRINCIPAL not in scope
        )


def _length_of(scope: Scope) -> int:
    """What the head says about the body; 0 where it does not."""
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else 0
