"""One Kafka connection: frames in, calls out, replies back in order.

The receive path is where copies hide, so it has none: the kernel writes into this connection's
own buffer and handlers read from it through memoryviews. Frames are handled inside
`buffer_updated`, before the next bytes arrive; a `records` view is therefore valid only until its
handler returns, and a handler that waits must copy what it keeps.

Requests are handled in order. A handler may answer later (`call.reply`); replies still leave in
order. PIPELINED routes let the next request begin meanwhile, ORDERED ones hold it back.

Reading stops while a reply is being waited for in order, while the peer does not take what we
send, while too many replies are pending, and while the memory budget is used up. A peer that
breaks the protocol is closed; so is one that stalls (see `listener.py` for the deadlines).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from typing import Any, cast

from penstock.api.context import Call, Context
from penstock.api.dispatch import Dispatcher
from penstock.api.route import Stage
from penstock.base.errors import PeerError
from penstock.base.ports import Buffer
from penstock.server.budget import Budget
from penstock.server.outbox import Outbox, is_buffer

log = logging.getLogger("penstock.server")

BUFFER_BYTES_MIN = 4 * 1024
WHOLE_FRAME_BYTES = 64 * 1024  # larger frames are received alone, so that nothing is moved
PENDING_REPLIES_MAX = 1000
WRITE_BUFFER_BYTES = 256 * 1024


class Connection(asyncio.BufferedProtocol):
    """Receive buffer, pending calls and flow control of one peer."""

    __slots__ = (
        "_budget",
        "_buffer",
        "_ctx",
        "_dispatcher",
        "_draining",
        "_end",
        "_frame_bytes_max",
        "_is_processing",
        "_is_woken",
        "_listener",
        "_loop",
        "_outbox",
        "_over_budget",
        "_pending",
        "_reading_paused",
        "_ready",
        "_reserved",
        "_start",
        "_task",
        "_view",
        "_waiting_for",
        "closed",
        "last_active",
        "peer",
        "principal",
        "requests",
        "transport",
    )

    def __init__(
        self,
        ctx: Context,
        dispatcher: Dispatcher,
        budget: Budget,
        frame_bytes_max: int,
        listener: "ConnectionOwner",
    ) -> None:
        self._ctx = ctx
        self._dispatcher = dispatcher
        self._budget = budget
        self._frame_bytes_max = frame_bytes_max
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        # The buffer holds unread bytes in [start, end).
        self._buffer = bytearray(0)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._reserved = 0
        self._over_budget = False
        # Replies not sent yet, oldest first.
        self._pending: deque[Call] = deque()
        self._waiting_for: Call | None = None
        self._task: asyncio.Task[None] | None = None
        self._reading_paused = False
        self._draining = False
        # Replies to be sent when the loop comes back to us.
        self._ready: list[Buffer] = []
        self._is_processing = False
        self._is_woken = False
        self.closed = False
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.principal = "User:ANONYMOUS"
        self.last_active = self._loop.time()
        self.requests = 0

    # -- the transport calls these ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, though they do the same.
        self.transport = transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else "unknown"
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)
        self._outbox = Outbox(transport)
        self._listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._task is not None:
            self._task.cancel()
        for call in self._pending:
            call.abandon()
        self._pending.clear()
        self._outbox.clear()
        self._budget.forget(self)
        self._release_buffer()
        self._listener.lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        start, end, view = self._start, self._end, self._view
        if end - start >= 4:
            # A frame has begun: receive exactly its rest when it is large.
            length = int.from_bytes(view[start : start + 4], "big")
            if length >= WHOLE_FRAME_BYTES and start + 4 + length <= len(view):
                return view[end : start + 4 + length]
        if len(view) - end < 1024:
            self._make_room()
            view, end = self._view, self._end
        return view[end:]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.last_active = self._loop.time()
        self._process()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._outbox.is_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._outbox.is_paused = False
        self.last_active = self._loop.time()
        if self._outbox:
            # From the loop: the transport is in the middle of its own bookkeeping here.
            self._loop.call_soon(self._send_on)
        else:
            self._process()

    def _send_on(self) -> None:
        self._send()
        if not self.is_blocked:
            self._process()

    def _send(self) -> None:
        if self.closed:
            return
        try:
            self._outbox.pump()
        except (OSError, EOFError) as error:
            log.info("closing %s: %s", self.peer, error)
            self.abort()

    # -- receiving --------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Moves what is unread to the front, and grows the buffer if that is not enough.

        It at most doubles: memory follows the bytes that arrived, not the length that a peer
        declared.
        """
        unread = self._end - self._start
        capacity = len(self._view)
        if capacity - unread < 1024:
            grown = max(BUFFER_BYTES_MIN, 2 * capacity)
            if unread >= 4:
                length = int.from_bytes(self._view[self._start : self._start + 4], "big")
                if length >= WHOLE_FRAME_BYTES:
                    grown = max(capacity + 1024, min(grown, length + 4 + 1024))
            self._budget_for(grown)
            capacity = grown
        if capacity == len(self._view):
            self._view[:unread] = self._view[self._start : self._end]
        else:
            buffer = bytearray(capacity)
            buffer[:unread] = self._view[self._start : self._end]
            self._buffer = buffer
            self._view = memoryview(buffer)
        self._start = 0
        self._end = unread

    def _budget_for(self, capacity: int) -> None:
        """Small buffers are free; growth beyond them is counted, and over budget we pause."""
        wanted = capacity if capacity > WHOLE_FRAME_BYTES else 0
        more = wanted - self._reserved
        if more <= 0:
            return
        if self._budget.take(more):
            self._reserved = wanted
            return
        # This one step is granted, since the transport asks for a buffer now; no further byte
        # is read until others have given theirs back.
        self._budget.used += more
        self._reserved = wanted
        self._over_budget = True
        self._pause_reading()
        self._budget.wait(self, self._within_budget)

    def _within_budget(self) -> None:
        self._over_budget = False
        self._wake()

    def _release_buffer(self) -> None:
        self._buffer = bytearray(0)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        if self._reserved:
            reserved, self._reserved = self._reserved, 0
            self._budget.give(reserved)

    def shrink(self) -> None:
        """Gives a large, empty buffer back; the sweep calls it for connections gone quiet."""
        if self._reserved and self._start == self._end and not self.closed:
            self._release_buffer()

    @property
    def is_blocked(self) -> bool:
        """True while the next request must wait."""
        return (
            self._waiting_for is not None
            or len(self._pending) >= PENDING_REPLIES_MAX
            or self._is_sending
            or self._draining
            or self.closed
        )

    @property
    def _is_sending(self) -> bool:
        """The peer has not taken our last replies yet."""
        outbox = self._outbox
        return outbox.is_paused or bool(outbox)

    @property
    def is_stalled_by_peer(self) -> bool:
        """The peer owes us something: the rest of a frame, or reading what we sent."""
        return self._is_sending or (self._end > self._start and not self.is_blocked)

    @property
    def is_idle(self) -> bool:
        return not self._pending and self._waiting_for is None

    @property
    def owes_acknowledgement(self) -> bool:
        """Something was appended for this peer and it has not been told yet."""
        return any(call.route.stage is Stage.PIPELINED for call in self._pending)

    def _process(self) -> None:
        """Sends what is ready and handles every whole frame, as far as we are allowed to."""
        if self.closed:
            return
        self._is_woken = False
        self._is_processing = True
        try:
            self._send_ready()
            while not self.is_blocked:
                start, end = self._start, self._end
                if end - start < 4:
                    break
                length = int.from_bytes(self._view[start : start + 4], "big", signed=True)
                if not 0 <= length <= self._frame_bytes_max:
                    raise PeerError(f"frame of {length} bytes, allowed are {self._frame_bytes_max}")
                finish = start + 4 + length
                if end < finish:
                    break
                if finish == end:
                    self._start = self._end = 0
                else:
                    self._start = finish
                self._handle(start + 4, finish)
        except PeerError as error:
            self._ctx.metrics.peer_errors.value += 1
            log.info("closing %s: %s", self.peer, error)
            self.abort()
            return
        except Exception:
            self._ctx.metrics.internal_errors.value += 1
            log.exception("closing %s after an unexpected error", self.peer)
            self.abort()
            return
        finally:
            self._is_processing = False
        self._send_ready()
        if self.closed:
            return
        if self.is_blocked:
            self._pause_reading()
            return
        if self._start == self._end and self._reserved and self._budget.is_contended:
            self._release_buffer()
        if not self._over_budget:
            self._resume_reading()

    def _handle(self, start: int, end: int) -> None:
        self.requests += 1
        call = self._dispatcher.call(self, self._view, start, end)
        self._pending.append(call)
        result = self._dispatcher.handle(call, self._view, end)
        if result is None:
            if not call.is_done and call.route.stage is Stage.ORDERED:
                self._waiting_for = call
        elif isinstance(result, Awaitable):
            self._waiting_for = call
            self._task = self._loop.create_task(self._finish(call, result))
        else:
            call.reply(result)

    async def _finish(self, call: Call, answer: Awaitable[Any]) -> None:
        try:
            response = await answer
            if response is not None:
                call.reply(response)
            elif call is self._waiting_for and call.route.stage is Stage.PIPELINED:
                # It got past what had to be waited for; the reply comes when it comes.
                self._waiting_for = None
                self._process()
        except PeerError as error:
            self._ctx.metrics.peer_errors.value += 1
            log.info("closing %s: %s", self.peer, error)
            self.abort()
        except Exception:
            self._ctx.metrics.internal_errors.value += 1
            log.exception("closing %s after an unexpected error", self.peer)
            self.abort()

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self.closed and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused and self.transport is not None:
            if self.transport.is_closing():
                return
            self._reading_paused = False
            self.transport.resume_reading()

    # -- sending ----------------------------------------------------------------------------

    def settle(self, call: Call) -> None:
        """A call has its reply (or needs none): send what is ready, oldest first."""
        if self.closed:
            return
        pending = self._pending
        while pending and pending[0].is_done:
            frame = pending.popleft().frame
            if frame:
                self._ready += frame
        if call is self._waiting_for:
            self._waiting_for = None
            self._task = None
        # A group commit settles many calls at once, and so may one read: all their replies
        # leave together, when the loop comes back to us or `_process` is through.
        if not self._is_processing and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._process)

    def _send_ready(self) -> None:
        ready = self._ready
        if not ready:
            return
        self._ready = []
        if self._outbox or not all(map(is_buffer, ready)):
            self._outbox.put(ready)
            self._send()
        else:
            assert self.transport is not None
            self.transport.write(ready[0] if len(ready) == 1 else b"".join(ready))

    def _wake(self) -> None:
        # Handled from the loop, not from here: whoever calls may be in the middle of something.
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._process)

    def drain(self) -> None:
        """Reads no further request; what is being answered is still answered."""
        self._draining = True
        self._pause_reading()

    def close(self) -> None:
        if self.transport is not None and not self.closed:
            self._send_ready()
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None and not self.closed:
            self.closed = True
            self.transport.abort()


class ConnectionOwner:
    """What a connection tells of itself; the listener is one."""

    def opened(self, connection: Connection) -> None:
        raise NotImplementedError

    def lost(self, connection: Connection) -> None:
        raise NotImplementedError
