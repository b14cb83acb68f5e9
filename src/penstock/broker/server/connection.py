"""One Kafka connection: frames in, calls out, replies back in order.

The receive path is where copies hide, so it has none: the kernel writes into this connection's
own buffer and handlers read from it through memoryviews. Frames are handled inside
`buffer_updated`, before the next bytes arrive; a `records` view is therefore valid only until its
handler returns, and a handler that waits must copy what it keeps.

Requests are handled in order. A handler may answer later (`call.reply`); replies still leave in
order. PIPELINED routes let the next request begin meanwhile, ORDERED ones hold it back; PARALLEL
ones run as tasks beside each other.

The next request waits while a reply is being waited for in order, while the peer does not take
what we send, and while too many replies are pending, or large ones behind one that is not ready
(`unsent`); once some of it is here, reading stops.
Until then we read on: it costs nothing and is how we learn that the peer is gone. Reading stops
at once while the peer does not take what we send and while the memory budget is used up.

A peer that breaks the protocol is closed; so is one that stalls (deadlines: `listener.py`).
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
from penstock.broker.server.connection_owner import ConnectionOwner
from penstock.broker.server.read_pause import ReadPause
from penstock.broker.server.receive_budget import ReceiveBudget
from penstock.broker.server.reply_limits import PARKED_BYTES_MAX, bytes_of
from penstock.broker.server.send_queue import SMALL, SendQueue
from penstock.security.acl_types import ANONYMOUS
from penstock.security.login import Login

log = logging.getLogger("penstock.server")

BUFFER_BYTES_MIN = 4 * 1024
WHOLE_FRAME_BYTES = 64 * 1024  # larger frames are received alone, so that nothing is moved
ROOM_BYTES_MIN = 1024  # the transport is never given less room than this
PENDING_REPLIES_MAX = 1000
FRAME_BYTES_BEFORE_LOGIN = 64 * 1024
"""Nobody needs more to say who they are."""
WRITE_BUFFER_BYTES = 256 * 1024
SMALL_KINDS = frozenset(SMALL)
READY_BYTES_MAX = 64 * 1024  # replies kept back so that they leave together


class KafkaConnection(asyncio.BufferedProtocol):
    """Receive buffer, pending calls and flow control of one peer."""

    __slots__ = (
        "_budget", "_buffer", "_closers", "_ctx", "_dispatcher", "_draining", "_end",
        "_frame_bytes_max", "_is_closing", "_is_processing", "_is_woken", "_listener", "_loop",
        "_muting", "_outbox", "_parked_bytes", "_pending", "_reading_paused", "_ready",
        "_ready_bytes", "_reserved", "_start", "_tasks", "_view", "_waiting_for", "_wanted",
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
        """`login`: how the peer has to say who it is; None: it need not. `name`: the listener's."""
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
        # What the budget counts for it, and what it waits for there; 0: nothing.
        self._reserved = 0
        self._wanted = 0
        # Replies not sent yet, oldest first.
        self._pending: deque[Call] = deque()
        self._parked_bytes = 0  # of those that are finished and wait for the first of them
        self._waiting_for: Call | None = None
        self._tasks: dict[asyncio.Task[None], Awaitable[Any]] = {}
        self._reading_paused = False
        self._draining = False
        self._muting = ReadPause(self._process)
        self._is_closing = False
        # Replies to be sent when the loop comes back to us.
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

    # -- the transport calls these ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, though they do the same.
        self.transport = transport = cast("asyncio.Transport", transport)
        address, local = map(transport.get_extra_info, ("peername", "sockname"))
        self.peer = str(address[0]) if address else "unknown"
        self.local_host = str(local[0]).removeprefix("::ffff:") if local else ""
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)
        self._outbox = SendQueue(transport, self._listener.room, self._send_on)
        self._listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self.transport is None:
            return  # A handshake that failed: nobody was there yet.
        for task in tuple(self._tasks):
            task.cancel()
        for call in self._pending:
            call.abandon()
        # Nothing may keep this and its calls in a circle: that would be left to the collector.
        self._waiting_for = None
        self._muting.close()
        self._pending.clear()
        self._ready.clear()
        self._outbox.clear()
        self._budget.unsent.release(self)
        self._release_buffer()
        closers, self._closers = self._closers, []
        for act in closers:
            act()
        self._listener.lost(self)

    def when_closed(self, act: Callable[[], None]) -> None:
        """To be called once when the connection is lost, whoever ended it."""
        self._closers.append(act)

    def get_buffer(self, sizehint: int) -> memoryview:
        start, end, view = self._start, self._end, self._view
        if end - start >= 4:
            # A frame has begun: receive exactly its rest when it is large.
            length = int.from_bytes(view[start : start + 4], "big")
            if length >= WHOLE_FRAME_BYTES and end < start + 4 + length <= len(view):
                return view[end : start + 4 + length]
        if len(view) - end < ROOM_BYTES_MIN:
            self._make_room()
            view, end = self._view, self._end
        return view[end:]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.last_active = self._loop.time()
        self._process()

    def pause_writing(self) -> None:
        self._outbox.is_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._outbox.is_paused = False
        # From the loop: the transport is in the middle of its own bookkeeping here.
        self._loop.call_soon(self._send_on)

    def _send_on(self) -> None:
        self.last_active = self._loop.time()
        self._send()
        if self._is_closing:
            self.close()
        elif not self._outbox.parts:
            self._process()

    def _send(self) -> None:
        if self.closed:
            return
        try:
            self._outbox.pump()
            if not self._outbox.parts:
                self._ctx.fetch.read_ahead.sent()
        except (OSError, EOFError) as error:
            log.info("closing %s: %s", self.peer, error)
            self.abort()

    # -- receiving --------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Moves what is unread to the front, and grows the buffer if that is not enough: at most
        twofold, so that memory follows the bytes that arrived and not the length declared."""
        unread, capacity = self._end - self._start, len(self._view)
        if capacity - unread < ROOM_BYTES_MIN:
            self._resize(self._next_capacity(capacity, unread))
        else:
            self._view[:unread] = self._view[self._start : self._end]
            self._start, self._end = 0, unread

    def _next_capacity(self, capacity: int, unread: int) -> int:
        """Small buffers are free; beyond them growth is counted, and over budget we pause."""
        grown = max(BUFFER_BYTES_MIN, 2 * capacity)
        if unread >= 4:
            length = int.from_bytes(self._view[self._start : self._start + 4], "big")
            if length >= WHOLE_FRAME_BYTES:
                grown = max(capacity + ROOM_BYTES_MIN, min(grown, length + 4 + ROOM_BYTES_MIN))
        if grown <= (BUFFER_BYTES_MIN if self.is_stranger else WHOLE_FRAME_BYTES):
            return grown
        if not self._wanted:
            if (self._budget.lend if self.is_stranger else self._budget.hold)(self, grown):
                self._reserved = grown
                return grown
            self._wanted = grown
            if self.is_stranger:
                self._loop.call_soon(self.abort)
            else:
                self._budget.wait(self, grown, self._within_budget)
        # The transport wants a buffer now: this little is for what it has in hand.
        return capacity + ROOM_BYTES_MIN

    def _within_budget(self) -> None:
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
        """Gives an empty buffer back; the sweep calls it for connections gone quiet."""
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
            or self._outbox.is_busy
            or self._draining
            or self._muting.is_on
            or self.closed
        )

    @property
    def is_stranger(self) -> bool:  # It has to say who it is, and has not yet.
        return self.login is not None and self.login.is_awaited

    @property
    def is_stalled_by_peer(self) -> bool:
        """The peer owes us something: the rest of a frame, or reading what we sent."""
        if self._outbox.is_busy:
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
    def owes_acknowledgement(self) -> bool:
        """Something was done for this peer, or is being done, and it has not been told yet."""
        if self._ready or self._outbox.parts or self._tasks:
            return True
        return any(call.route.stage is ReplyOrder.PIPELINED for call in self._pending)

    def quiet_for(self, now: float) -> float:
        """Seconds since the peer sent something, or took something of ours."""
        if self._outbox.has_moved:
            self._outbox.has_moved = False
            self.last_active = now
        return now - self.last_active

    def expire(self, now: float) -> None:
        """Answers those calls whose own time limit has passed."""
        for call in tuple(self._pending):
            if call.deadline <= now and not call.is_done:
                call.time_out()

    def _process(self) -> None:
        """Sends what is ready and handles every whole frame, as far as we are allowed to."""
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
                    raise PeerError(f"frame of {length} bytes, allowed are {self._frame_bytes_max}")
                if length > FRAME_BYTES_BEFORE_LOGIN and self.is_stranger:
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
                    # The peer must take these before it is served any further.
                    self._send_ready()
        except Exception as error:  # noqa: BLE001 - told apart and logged there
            self._give_up(error)
            return
        finally:
            self._is_processing = False
        if self._ready:
            self._send_ready()
        if self.closed:
            return
        if not self._outbox.is_busy and not self._parked_bytes:
            self._budget.unsent.release(self)
        if self.is_blocked:
            if self._end > self._start:
                self._pause_reading()
            return
        has_budget = self._reserved or self._wanted
        if has_budget and self._start == self._end and self._budget.wants_back(self):
            self._release_buffer()
        if self._wanted:
            self._pause_reading()  # Not in `get_buffer`: libuv crashes if a read is stopped in it.
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
                # It got past what had to be waited for; the reply comes when it comes.
                self._waiting_for = None
                self._wake()
        except Exception as error:  # noqa: BLE001 - told apart and logged there
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
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
        """A call has its reply (or needs none): send what is ready, oldest first."""
        if self.closed:
            return
        pending = self._pending
        if pending and pending[0] is not call:
            self._park(call)
        while pending and pending[0].is_done:
            first = pending.popleft()
            frame = first.frame
            if frame:
                self._ready += frame
                # Only large replies come in more than one part.
                self._ready_bytes += len(frame[0]) if len(frame) == 1 else READY_BYTES_MAX
                if first is not call:
                    self._parked_bytes -= bytes_of(frame)
                elif len(frame) > 1:
                    self._count(frame)
        if call is self._waiting_for:
            self._waiting_for = None
        # A group commit settles many calls at once, and so may one read: all their replies
        # leave together, when the loop comes back to us or `_process` is through.
        if not self._is_processing and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._process)

    def _park(self, call: Call) -> None:
        """It waits for an earlier one: what it takes counts until both are sent."""
        self._parked_bytes += bytes_of(call.frame or ())
        self._count(call.frame or [])

    def _count(self, frame: list[Buffer]) -> None:
        """A reply is kept until the peer has taken it, if there is room for it."""
        if not self._budget.unsent.keep(self, bytes_of(frame), self._loop.time()):
            log.info("closing %s: too much of what it asked for is not read", self.peer)
            self._loop.call_soon(self.abort)

    def is_unread(self, now: float, seconds: float) -> bool:
        return self._outbox.is_busy and self.quiet_for(now) >= seconds

    def _send_ready(self) -> None:
        ready, self._ready = self._ready, []
        self._ready_bytes = 0
        if self._outbox.parts or not SMALL_KINDS.issuperset(map(type, ready)):
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

    def mute(self, seconds: float) -> None:
        """Handles no further request for that long; what is being answered is still answered."""
        self._muting.extend(seconds)

    def drain(self) -> None:
        """Reads no further request; what is being answered is still answered."""
        self._draining = True
        self._pause_reading()

    def close(self) -> None:
        """Takes no more requests, and ends the connection once what is answered has left."""
        if self.transport is None or self.closed:
            return
        self._draining = self._is_closing = True
        self._pause_reading()
        if self._ready:
            self._send_ready()
        if not self._outbox.parts and not self.closed:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None and not self.closed:
            self.closed = True
            self.transport.abort()
