"""How large a request's body may be, and all bodies together.

One body: what the largest message of any topic takes as base64 in JSON, and `BODY_BYTES_MAX` more.
All that are being received or handled: `BODIES_BYTES_MAX`; what comes on top is sent away with 503
until some are done. Where rights are asked for, those who have not said who they are (or say it in
the body's signature) have `STRANGERS_BYTES_MAX` of that, and leave the rest to others.
"""

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.base.errors import ErrorCode, Refused
from penstock.doors.door import Door
from penstock.http.problems import PRINCIPAL, problem

BODY_BYTES_MAX = 4 << 20
BODIES_BYTES_MAX = 256 << 20
STRANGERS_BYTES_MAX = 64 << 20
TOO_LARGE, NOT_AVAILABLE = 413, 503


class BodyLimit:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, door: Door | None) -> None:
        self._app = app
        self._door = door
        self.bytes = 0
        """What the bodies of all requests under way take."""
        self.strangers_bytes = 0

    @property
    def bytes_max(self) -> int:
        if self._door is None:
            return BODY_BYTES_MAX
        return BODY_BYTES_MAX + self._door.message_bytes_max * 4 // 3

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bytes_max, taken = self.bytes_max, 0
        is_stranger = self._is_stranger(scope)
        if _length_of(scope) > bytes_max:
            why = f"the body is larger than {bytes_max} bytes: send fewer messages at a time"
            await problem(Refused(ErrorCode.MESSAGE_TOO_LARGE, why))(scope, receive, send)
            return

        async def receive_some() -> Message:
            nonlocal taken
            message = await receive()
            size = len(message.get("body", b""))
            taken += size
            self.bytes += size
            if is_stranger:
                self.strangers_bytes += size
            if taken > bytes_max:
                raise HTTPException(TOO_LARGE)
            if self.bytes > BODIES_BYTES_MAX or (
                is_stranger and self.strangers_bytes > STRANGERS_BYTES_MAX
            ):
                raise HTTPException(NOT_AVAILABLE, "too many large requests at once: try again")
            return message

        try:
            await self._app(scope, receive_some, send)
        finally:
            self.bytes -= taken
            if is_stranger:
                self.strangers_bytes -= taken

    def _is_stranger(self, scope: Scope) -> bool:
        return self._door is not None and self._door.ctx.authorizer.is_on and PRINCIPAL not in scope


def _length_of(scope: Scope) -> int:
    """What the head says about the body; 0 where it does not."""
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else 0
