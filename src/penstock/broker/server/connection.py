"""Kafka connection: receives frames, dispatches calls, sends replies in order.

The receive path makes no copies: the kernel writes into this connection's own buffer, and handlers
read it through memoryviews. Frames are handled inside `buffer_updated`, before the next bytes
arrive. So a `records` view is valid only until its handler returns, and a handler that waits must
copy what it keeps.

Requests are handled in order. A handler may reply later (`call.reply`), but replies are sent in
order. PIPELINED routes let the next request begin meanwhile, ORDERED ones block it, PARALLEL ones
run as concurrent tasks.

The next request waits in three cases: an ORDERED reply is pending, the peer does not read, or too
many replies are pending, or large ones behind one that is not ready (`reply_limits`). Reading
continues until bytes of that request arrive, because it costs nothing and detects that the peer is
gone. Reading stops at once while the peer does not read and while the memory budget is used up.

A peer that breaks the protocol is closed; so is one that stalls (deadlines: `listener`).

Pause of reading from a connection whose client exceeded a quota (KIP-219).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

from penstock.base.deferred import drop
from penstock.base.errors import PeerError
from penstock.base.ports import Buffer
from penstock.broker.api.call import Call
from penstock.broker.api.context import Context
from penstock.broker.api.dispatch import Dispatcher
from penstock.broker.api.route_row import ReplyOrder
from penstock.broker.server.receive_budget import ReceiveBudget
from penstock.broker.server.reply_limits import PARKED_BYTES_MAX, bytes_of
from penstock.broker.server.send_queue import SMALL, SendQueue
from penstock.broker.server.writable_poller import WritablePoller
from penstock.security.acl_types import ANONYMOUS
from penstock.security.login import Login


def _nothing() -> None:
    pass


class ReadPause:
    """Pause until the end of the last extension; calls `over` then."""

    __slots__ = ("_is_closed", "_over", "_timer", "_until_s", "is_on")

    def __init__(self, over: Callable[[], None]) -> None:
        self._over = over
        self._until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.is_on = False

    def extend(self, seconds: float) -> None:
        """Extends the pause to at least this time from now."""
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        self._until_s = max(self._until_s, loop.time() + seconds)
        if not self.is_on:
            self.is_on = True
            self._timer = loop.call_at(self._until_s, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._until_s:
            self._timer = loop.call_at(self._until_s, self._look)
        else:
            self.is_on = False
            self._over()

    def close(self) -> None:
        """Ends the pause without calling `over`: the connection is closed."""
        self._is_closed = True
        self._over = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


log = logging.getLogger("penstock.server")

BUFFER_BYTES_MIN = 4 * 1024
WHOLE_FRAME_BYTES = 64 * 1024  # larger frames are received alone, so that no bytes are moved
SPACE_BYTES_MIN = 1024  # smallest buffer that the transport gets
PENDING_REPLIES_MAX = 1000
FRAME_BYTES_BEFORE_LOGIN = 64 * 1024
"""Limits frames of peers that are not authenticated: authentication needs no more."""
WRITE_BUFFER_BYTES = 256 * 1024
SMALL_KINDS = frozenset(SMALL)
READY_BYTES_MAX = 64 * 1024  # replies collected to be sent together


class ConnectionOwner:
    """Notified when a connection begins and when it ends; the listener is one."""

    poller: WritablePoller
    """Poller that its connections use while their sockets are full."""

    def opened(self, connection: "KafkaConnection") -> None:
        raise NotImplementedError

    def lost(self, connection: "KafkaConnection") -> None:
        raise NotImplementedError


class KafkaConnection(asyncio.BufferedProtocol):
    """Receive buffer, pending calls and flow control of one peer."""

    __slots__ = (
        "_budget", "_buffer", "_closers", "_ctx", "_dispatcher", "_draining", "_end",
        "_frame_bytes_max", "_is_closing", "_is_processing", "_is_woken", "_listener", "_loop",
        "_parked_bytes", "_pending", "_read_pause", "_reading_paused", "_ready", "_ready_bytes",
        "_reserved", "_send_queue", "_start", "_tasks", "_view", "_waiting_for", "_wanted",
        "closed", "connected_at", "last_active", "last_request", "listener", "local_host", "login",
        "peer", "principal", "requests", "transport",
    )  # fmt: skip

    def __init__(
        self,
        ctx: Context,
        dispatcher: Dispatcher,
        budget: ReceiveBudget,
        frame_bytes_max: int,
        listener: ConnectionOwner,
        login: Login | None = None,
        name: str = "PLAINTEXT",
    ) -> None:
        """`login`: authentication of the peer; None: not required. `name`: name of the listener."""
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
        # Bytes that the budget has granted, and bytes that this waits for; 0: none.
        self._reserved = 0
        self._wanted = 0
        # Replies not sent yet, oldest first.
        self._pending: deque[Call] = deque()
        self._parked_bytes = 0  # finished replies that wait for an earlier one
        self._waiting_for: Call | None = None
        self._tasks: dict[asyncio.Task[None], Awaitable[Any]] = {}
        self._reading_paused = False
        self._draining = False
        self._read_pause = ReadPause(self._process)
        self._is_closing = False
        # Replies to send in the next iteration of the event loop.
        self._ready: list[Buffer] = []
        self._ready_bytes = 0
        self._is_processing = False
        self._is_woken = False
        self._closers: list[Callable[[], None]] = []
        self.closed = False
        self.transport: asyncio.Transport | None = None
        self.peer = self.local_host = ""
        self.principal = ANONYMOUS
        self.login = login
        self.listener = name
        self.connected_at = self.last_active = self.last_request = self._loop.time()
        self.requests = 0

    # -- called by the transport ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, but have the same methods.
        self.transport = transport = cast("asyncio.Transport", transport)
        address, local = map(transport.get_extra_info, ("peername", "sockname"))
        self.peer = str(address[0]) if address else "unknown"
        self.local_host = str(local[0]).removeprefix("::ffff:") if local else ""
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)
        self._send_queue = SendQueue(transport, self._listener.poller, self._on_writable)
        self._listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self.transport is None:
            return  # A failed handshake: `connection_made` was not called.
        for task in tuple(self._tasks):
            task.cancel()
        for call in self._pending:
            call.abandon()
        # Breaks reference cycles of this and its calls, which would need garbage collection.
        self._waiting_for = None
        self._read_pause.close()
        self._pending.clear()
        self._ready.clear()
        self._send_queue.clear()
        self._budget.replies.release(self)
        self._release_buffer()
        closers, self._closers = self._closers, []
        for act in closers:
            act()
        self._listener.lost(self)

    def when_closed(self, act: Callable[[], None]) -> None:
        """Registers `act` to be called once when the connection is lost, whatever the cause."""
        self._closers.append(act)

    def get_buffer(self, sizehint: int) -> memoryview:
        start, end, view = self._start, self._end, self._view
        if end - start >= 4:
            # Receive exactly the rest of a large frame that has begun.
            length = int.from_bytes(view[start : start + 4], "big")
            if length >= WHOLE_FRAME_BYTES and end < start + 4 + length <= len(view):
                return view[end : start + 4 + length]
        if len(view) - end < SPACE_BYTES_MIN:
            self._make_space()
            view, end = self._view, self._end
        return view[end:]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.last_active = self._loop.time()
        self._process()

    def pause_writing(self) -> None:
        self._send_queue.is_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._send_queue.is_paused = False
        # From the event loop: the transport is in the middle of its own bookkeeping here.
        self._loop.call_soon(self._on_writable)

    def _on_writable(self) -> None:
        self.last_active = self._loop.time()
        self._send()
        if self._is_closing:
            self.close()
        elif not self._send_queue.parts:
            self._process()

    def _send(self) -> None:
        if self.closed:
            return
        try:
            self._send_queue.pump()
            if not self._send_queue.parts:
                self._ctx.fetch.read_ahead.sent()
        except (OSError, EOFError) as error:
            log.info("closing %s: %s", self.peer, error)
            self.abort()

    # -- receiving --------------------------------------------------------------------------

    def _make_space(self) -> None:
        """Moves unread bytes to the front and grows the buffer if needed.

        It grows at most twofold, so that memory depends on received bytes, not on the declared
        length.
        """
        unread, capacity = self._end - self._start, len(self._view)
        if capacity - unread < SPACE_BYTES_MIN:
            self._resize(self._next_capacity(capacity, unread))
        else:
            self._view[:unread] = self._view[self._start : self._end]
            self._start, self._end = 0, unread

    def _next_capacity(self, capacity: int, unread: int) -> int:
        """Small buffers are not counted; above them, growth needs budget, or reading pauses."""
        grown = max(BUFFER_BYTES_MIN, 2 * capacity)
        if unread >= 4:
            length = int.from_bytes(self._view[self._start : self._start + 4], "big")
            if length >= WHOLE_FRAME_BYTES:
                grown = max(capacity + SPACE_BYTES_MIN, min(grown, length + 4 + SPACE_BYTES_MIN))
        if grown <= (BUFFER_BYTES_MIN if self.is_unauthenticated else WHOLE_FRAME_BYTES):
            return grown
        if not self._wanted:
            if (
                self._budget.hold_unauthenticated if self.is_unauthenticated else self._budget.hold
            )(self, grown):
                self._reserved = grown
                return grown
            self._wanted = grown
            if self.is_unauthenticated:
                self._loop.call_soon(self.abort)
            else:
                self._budget.wait(self, grown, self._on_budget_granted)
        # The transport needs a buffer now, for the bytes it has already.
        return capacity + SPACE_BYTES_MIN

    def _on_budget_granted(self) -> None:
        self._reserved, self._wanted = self._wanted, 0
        if self._reserved > len(self._view):
            self._resize(self._reserved)
        self.last_active = self.last_request = self._loop.time()
        self._wake()

    def _resize(self, capacity: int) -> None:
        unread = self._end - self._start
        self._buffer = buffer = bytearray(capacity)
        buffer[:unread] = self._view[self._start : self._end]
        self._view = memoryview(buffer)
        self._start, self._end = 0, unread

    def _release_buffer(self) -> None:
        self._buffer = bytearray(0)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        if self._reserved or self._wanted:
            self._reserved = self._wanted = 0
            self._budget.release(self)

    def shrink(self) -> None:
        """Releases an empty buffer; the sweep calls it for quiet connections."""
        if self._start == self._end and len(self._view) > BUFFER_BYTES_MIN and not self.closed:
            self._release_buffer()
            self._wake()

    @property
    def is_blocked(self) -> bool:
        """True while the next request must wait."""
        return (
            self._waiting_for is not None
            or len(self._pending) >= PENDING_REPLIES_MAX
            or self._parked_bytes >= PARKED_BYTES_MAX
            or self._send_queue.is_busy
            or self._draining
            or self._read_pause.is_on
            or self.closed
        )

    @property
    def is_unauthenticated(self) -> bool:  # It must authenticate and has not yet.
        return self.login is not None and self.login.is_awaited

    @property
    def is_stalled_by_peer(self) -> bool:
        """True while the rest of a frame is missing, or the peer does not read replies."""
        if self._send_queue.is_busy:
            return True
        return self._end > self._start and not self.is_blocked and not self._wanted

    @property
    def holds_budget(self) -> bool:
        return self._reserved > 0

    @property
    def waits_for_budget(self) -> bool:
        return self._wanted > 0

    @property
    def is_idle(self) -> bool:
        return not self._pending and self._waiting_for is None

    @property
    def has_pending_replies(self) -> bool:
        """True while a request of this peer is handled, or its reply was not sent yet."""
        if self._ready or self._send_queue.parts or self._tasks:
            return True
        return any(call.route.stage is ReplyOrder.PIPELINED for call in self._pending)

    def quiet_for(self, now: float) -> float:
        """Seconds since the peer sent or received bytes."""
        if self._send_queue.has_moved:
            self._send_queue.has_moved = False
            self.last_active = now
        return now - self.last_active

    def expire(self, now: float) -> None:
        """Answers calls whose own time limit has passed."""
        for call in tuple(self._pending):
            if call.deadline <= now and not call.is_done:
                call.time_out()

    def _process(self) -> None:
        """Sends ready replies and handles every whole frame, unless blocked."""
        if self.closed:
            return
        self._is_woken = False
        self._is_processing = True
        try:
            if self._ready:
                self._send_ready()
            while self._end - self._start >= 4 and not self.is_blocked:
                start, end = self._start, self._end
                length = int.from_bytes(self._view[start : start + 4], "big", signed=True)
                if not 0 <= length <= self._frame_bytes_max:
                    raise PeerError(f"frame of {length} bytes exceeds {self._frame_bytes_max}")
                if length > FRAME_BYTES_BEFORE_LOGIN and self.is_unauthenticated:
                    raise PeerError(f"frame of {length} bytes before authentication")
                finish = start + 4 + length
                if end < finish:
                    break
                if finish == end:
                    self._start = self._end = 0
                else:
                    self._start = finish
                self._handle(start + 4, finish)
                if self._ready_bytes >= READY_BYTES_MAX:
                    # The peer must read these before it is served any further.
                    self._send_ready()
        except Exception as error:  # noqa: BLE001 - told apart and logged there
            self._close_on_error(error)
            return
        finally:
            self._is_processing = False
        if self._ready:
            self._send_ready()
        if self.closed:
            return
        if not self._send_queue.is_busy and not self._parked_bytes:
            self._budget.replies.release(self)
        if self.is_blocked:
            if self._end > self._start:
                self._pause_reading()
            return
        has_budget = self._reserved or self._wanted
        if has_budget and self._start == self._end and self._budget.should_release(self):
            self._release_buffer()
        if self._wanted:
            self._pause_reading()  # Not in `get_buffer`: libuv crashes if a read stops in it.
        else:
            self._resume_reading()

    def _handle(self, start: int, end: int) -> None:
        self.requests += 1
        call = self._dispatcher.call(self, self._view, start, end)
        self.last_request = call.started
        self._pending.append(call)
        result = self._dispatcher.handle(call, self._view, end)
        if type(result) is call.prepared.route.response:
            call.reply(result)
        elif result is None:
            if not call.is_done and call.route.stage is ReplyOrder.ORDERED:
                self._waiting_for = call
        elif isinstance(result, Awaitable):
            if call.route.stage is not ReplyOrder.PARALLEL:
                self._waiting_for = call
            task = self._loop.create_task(self._finish(call, result))
            self._tasks[task] = result
            task.add_done_callback(lambda done: drop(self._tasks.pop(done)))
        else:
            call.reply(result)

    async def _finish(self, call: Call, answer: Awaitable[Any]) -> None:
        try:
            response = await answer
            if response is not None:
                call.reply(response)
            elif call is self._waiting_for and call.route.stage is ReplyOrder.PIPELINED:
                # The ordered part is done; the reply comes later.
                self._waiting_for = None
                self._wake()
        except Exception as error:  # noqa: BLE001 - told apart and logged there
            self._close_on_error(error)

    def _close_on_error(self, error: Exception) -> None:
        if isinstance(error, PeerError):
            self._ctx.metrics.peer_errors.value += 1
            log.info("closing %s: %s", self.peer, error)
        else:
            self._ctx.metrics.internal_errors.value += 1
            log.error("closing %s after an unexpected error", self.peer, exc_info=error)
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
        """Handles a finished call: sends ready replies, oldest first."""
        if self.closed:
            return
        pending = self._pending
        if pending and pending[0] is not call:
            self._count_parked(call)
        while pending and pending[0].is_done:
            first = pending.popleft()
            frame = first.frame
            if frame:
                self._ready += frame
                # Only large replies have more than one part.
                self._ready_bytes += len(frame[0]) if len(frame) == 1 else READY_BYTES_MAX
                if first is not call:
                    self._parked_bytes -= bytes_of(frame)
                elif len(frame) > 1:
                    self._count(frame)
        if call is self._waiting_for:
            self._waiting_for = None
        # A group commit finishes many calls at once, and so may one read. All their replies
        # are sent together, in the next iteration of the loop or at the end of `_process`.
        if not self._is_processing and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._process)

    def _count_parked(self, call: Call) -> None:
        """Counts a finished reply that waits for an earlier one, until both are sent."""
        self._parked_bytes += bytes_of(call.frame or ())
        self._count(call.frame or [])

    def _count(self, frame: list[Buffer]) -> None:
        """Counts a large reply until the peer has read it; closes if the limit is reached."""
        if not self._budget.replies.keep(self, bytes_of(frame), self._loop.time()):
            log.info(
                "closing %s: it does not read its replies, and they exceed the limit", self.peer
            )
            self._loop.call_soon(self.abort)

    def is_unread(self, now: float, seconds: float) -> bool:
        return self._send_queue.is_busy and self.quiet_for(now) >= seconds

    def _send_ready(self) -> None:
        ready, self._ready = self._ready, []
        self._ready_bytes = 0
        if self._send_queue.parts or not SMALL_KINDS.issuperset(map(type, ready)):
            self._send_queue.put(ready)
            self._send()
        else:
            assert self.transport is not None
            self.transport.write(ready[0] if len(ready) == 1 else b"".join(ready))

    def _wake(self) -> None:
        # Handled from the event loop, since the caller may be in the middle of its work.
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._process)

    def mute(self, seconds: float) -> None:
        """Handles no further request for that time; pending requests are still answered."""
        self._read_pause.extend(seconds)

    def drain(self) -> None:
        """Reads no further request; pending requests are still answered."""
        self._draining = True
        self._pause_reading()

    def close(self) -> None:
        """Reads no further request, and ends the connection once all ready replies are sent."""
        if self.transport is None or self.closed:
            return
        self._draining = self._is_closing = True
        self._pause_reading()
        if self._ready:
            self._send_ready()
        if not self._send_queue.parts and not self.closed:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None and not self.closed:
            self.closed = True
            self.transport.abort()
