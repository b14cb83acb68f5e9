"""Memory limits for responses that clients have not read yet (ADR 36).

A response is passed to its connection in pieces, as the client reads it, and the rest counts: for
all clients together up to `WAITING_BYTES_MAX`, for one user, or one address of anonymous clients,
up to `HOLDER_BYTES_MAX`. A response that does not fit is replaced by a 503; an event stream that
has started ends with its connection. Before that, responses of the same holder whose clients have
not read for `GRACE_SECONDS` are dropped. A client that reads nothing for long is disconnected in
any case (`protocol`).

So unread responses hold that much memory, plus each transport's buffer:
`protocol.WRITE_BUFFER_BYTES` and one piece.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_pool import FairPool
from penstock.gateway.http.problems import NOT_AVAILABLE, PRINCIPAL, problem
from penstock.gateway.http.protocol import CONNECTION, PIECE_BYTES, BoundedProtocol
from penstock.gateway.http.request_io import peer_of

WAITING_BYTES_MAX = 256 << 20
HOLDER_BYTES_MAX = 64 << 20
GRACE_SECONDS = 5.0
TURN_BYTES = 8 * PIECE_BYTES
START, BODY = "http.response.start", "http.response.body"


class ResponseBudget:
    """Middleware that limits unread responses."""

    def __init__(
        self,
        app: ASGIApp,
        bytes_max: int = WAITING_BYTES_MAX,
        holder_bytes_max: int = HOLDER_BYTES_MAX,
    ) -> None:
        self._app = app
        self.shares = FairPool(bytes_max, holder_bytes_max)
        self._sending: dict[_PendingResponse, str] = {}
        """Responses that hold bytes, with their holders, oldest first."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _PendingResponse(self, scope, send)
        await self._app(scope, receive, response.send)

    def take(self, response: "_PendingResponse", holder: str, count: int) -> bool:
        """Reserves `count` bytes, if necessary by ending unread responses; False if they do not
        fit."""
        shares = self.shares
        if not shares.take(holder, count):
            is_own = shares.held(holder) + count > shares.holder_max
            now_s = asyncio.get_running_loop().time()
            for one, whose in list(self._sending.items()):
                if (whose == holder or not is_own) and one.is_unread(now_s):
                    one.end()
            if not shares.take(holder, count):
                return False
        self._sending[response] = holder
        return True

    def give(self, response: "_PendingResponse", count: int) -> None:
        self.shares.give(self._sending.pop(response), count)


class _PendingResponse:
    """Response being sent."""

    def __init__(self, budget: ResponseBudget, scope: Scope, send: Send) -> None:
        self._budget = budget
        self._scope = scope
        self._send = send
        self._head: Message | None = None
        self._held = 0
        self._is_dropped = False
        self._connection: BoundedProtocol | None = scope.get(CONNECTION)

    async def send(self, message: Message) -> None:
        if self._is_dropped:
            await asyncio.sleep(0)  # Lets the disconnect be delivered to the sender.
            return
        if message["type"] == START:
            self._head = message
            return
        if message["type"] != BODY:
            await self._send(message)
            return
        body: bytes = message.get("body", b"")
        if len(body) <= PIECE_BYTES:
            await self._begin()
            await self._send(message)
            return
        if not self._budget.take(self, self._holder(), len(body)):
            await self._drop()
            return
        self._held = len(body)
        try:
            await self._begin()
            await self._pass_on(body, bool(message.get("more_body", False)))
        finally:
            self._release()

    def _holder(self) -> str:
        """Holder of the response; authentication has run by now."""
        scope = self._scope
        return str(scope[PRINCIPAL]) if PRINCIPAL in scope else peer_of(scope)

    async def _begin(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            await self._send(head)

    async def _pass_on(self, body: bytes, more_body: bool) -> None:
        view = memoryview(body)
        for start in range(0, len(body), PIECE_BYTES):
            if self._is_dropped:
                return
            piece = bytes(view[start : start + PIECE_BYTES])
            more = more_body or start + PIECE_BYTES < len(body)
            await self._send({"type": BODY, "body": piece, "more_body": more})
            if start % TURN_BYTES == 0:
                # A client that reads fast must not delay the others.
                await asyncio.sleep(0)

    async def _drop(self) -> None:
        self._is_dropped = True
        if self._head is None:
            self.end()
            return
        why = "too many unread responses: read them, or retry later"
        response = problem(Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, why))
        response.status_code = NOT_AVAILABLE

        async def nothing() -> Message:
            return {"type": "http.disconnect"}

        await response(self._scope, nothing, self._send)

    def _release(self) -> None:
        held, self._held = self._held, 0
        if held:
            self._budget.give(self, held)

    def is_unread(self, now_s: float) -> bool:
        paused_at = self._connection.paused_at if self._connection is not None else None
        return paused_at is not None and now_s - paused_at >= GRACE_SECONDS

    def end(self) -> None:
        """Ends the response with its connection; releases its bytes."""
        self._is_dropped = True
        self._release()
        if self._connection is not None:
            self._connection.transport.abort()
