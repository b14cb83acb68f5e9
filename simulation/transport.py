"""One end of a simulated connection: an `asyncio.Transport` over a byte stream.

Behaves like asyncio's socket transport from a protocol's view. Writes are buffered, and
`pause_writing` is called above the high-water mark. A paused reader fills the window (the socket
buffers of a real machine) and then the sender's buffer. `close` sends buffered data, then an end of
file; `abort` discards it and resets the peer. Bytes of one direction keep their order; the network
(`network`) decides on segments, latency and delivery.

A killed end makes no more calls to its protocol, because its process is dead.
"""

import asyncio
import contextvars
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

HIGH_WATER_BYTES = 64 * 1024

Packet = bytes | None
"""Bytes, the end of file (empty), or a reset (None)."""


class Wire(Protocol):
    """Interface of a transport to the network."""

    window_bytes: int

    def segment_bytes(self, available: int) -> int: ...

    def send(self, source: "SimTransport", packet: Packet) -> None: ...

    def forget(self, transport: "SimTransport") -> None: ...


class SimTransport(asyncio.Transport):
    def __init__(
        self,
        loop: Any,
        wire: Wire,
        number: int,
        host: str,
        context: contextvars.Context,
        names: Mapping[str, object],
    ) -> None:
        super().__init__(extra=dict(names))
        self.number = number
        self.host = host
        self.context = context
        self.peer: SimTransport
        # State used by the network: packets in flight, in order; due time of the last one; number
        # of packets that were due while the route was cut.
        self.flight: deque[Packet] = deque()
        self.due = 0.0
        self.stalled = 0
        self.dead = False
        self._loop = loop
        self._wire = wire
        self._protocol: Any = None
        self._buffer: deque[bytes] = deque()  # Written, not yet in the window.
        self._buffered = 0
        self._in_window = 0  # Sent, and not yet taken by the peer's protocol.
        self._arrived: deque[bytes] = deque()  # Received while reading was paused.
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._reading_paused = True  # Until the protocol is set.
        self._is_reading = False  # The protocol is being asked for a buffer.
        self._finishing = False  # No more writes: an end of file follows the buffer.
        self._finished = False
        self._closing = False
        self._reset: Exception | None = None

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        if self._reset is not None:  # Reset before the protocol was set.
            self._loop.call_soon(protocol.connection_lost, self._reset, context=self.context)
        self.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._finishing and not self._closing:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self.dead or self._closing or not data:
            return
        self._buffer.append(bytes(data))
        self._buffered += len(self._buffer[-1])
        self._pump()
        if self._buffered > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self.dead:
            self._finishing = True
            self._pump()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return self._buffered

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def _pump(self) -> None:
        """Moves data that fits from the buffer into the window, in segments."""
        while self._buffer and self._in_window < self._wire.window_bytes:
            head = self._buffer.popleft()
            available = self._wire.window_bytes - self._in_window
            size = min(available, self._wire.segment_bytes(len(head)))
            if size < len(head):
                self._buffer.appendleft(head[size:])
                head = head[:size]
            self._buffered -= size
            self._in_window += size
            self._wire.send(self, head)
        if not self._buffer and self._finishing and not self._finished:
            self._finished = True
            self._wire.send(self, b"")
        if not self._buffer and self._closing:
            self._lose(None)

    def _taken(self, size: int) -> None:
        """Frees window space that the peer's protocol has consumed."""
        self._in_window -= size
        if self.dead:
            return
        self._pump()
        if self._writing_paused and self._buffered <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()

    # Reading.

    def is_reading(self) -> bool:
        return not (self._reading_paused or self._closing or self.dead)

    def pause_reading(self) -> None:
        assert not self._is_reading, "libuv crashes if a read is stopped in the middle of it"
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._loop.call_soon(self._drain, context=self.context)

    def deliver(self, packet: Packet) -> None:
        """Receives a packet; called by the network in this end's context, in sending order."""
        if self.dead:
            if packet:
                self._wire.send(self, None)  # The end is dead: reset the peer.
        elif packet is None:
            self._lose(ConnectionResetError("Connection reset by peer"))
        elif self._closing:
            self._release(len(packet))
        else:
            self._arrived.append(packet)
            self._drain()

    def _drain(self) -> None:
        while self._arrived and self.is_reading():
            data = self._arrived.popleft()
            self._loop.note(self.number, len(data), zlib.crc32(data))
            try:
                self._feed(data)
            except Exception as error:  # noqa: BLE001 - as asyncio: disconnects a failing protocol
                self._loop.call_exception_handler(
                    {
                        "message": "Fatal error: protocol.data_received() call failed.",
                        "exception": error,
                        "transport": self,
                        "protocol": self._protocol,
                    }
                )
                self._wire.send(self, None)
                self._lose(error)
            self._release(len(data))

    def _feed(self, data: bytes) -> None:
        protocol = self._protocol
        if not data:
            if not protocol.eof_received():
                self.close()
        elif isinstance(protocol, asyncio.BufferedProtocol):
            rest = memoryview(data)
            while rest and not self.dead:
                self._is_reading = True
                target = memoryview(protocol.get_buffer(len(rest))).cast("B")
                self._is_reading = False
                size = min(len(target), len(rest))
                if size == 0:
                    raise RuntimeError("get_buffer() returned an empty buffer")
                target[:size] = rest[:size]
                del target
                protocol.buffer_updated(size)
                rest = rest[size:]
        else:
            protocol.data_received(data)

    def _release(self, size: int) -> None:
        """Returns window space to the sender, in the sender's context."""
        self._loop.call_soon(self.peer._taken, size, context=self.peer.context)

    # Ending.

    def is_closing(self) -> bool:
        return self._closing or self.dead

    def close(self) -> None:
        if not self.is_closing():
            self._closing = self._finishing = True
            for data in self._arrived:
                self._release(len(data))
            self._arrived.clear()
            self._pump()

    def abort(self) -> None:
        if not self.dead:
            self._wire.send(self, None)
            self._lose(None)

    def kill(self) -> None:
        """Kills this end: no reset, no callback, no more packets."""
        self.dead = True
        self._buffer.clear()
        self._wire.forget(self)

    def _lose(self, error: Exception | None) -> None:
        if not self.dead:
            self.kill()
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, error, context=self.context)
            else:
                self._reset = error
