"""Requests written byte for byte to one node, without a client that would go elsewhere."""

import socket
import struct
from typing import Any

from penstock.wire.codec import reader, writer
from penstock.wire.framing import read_response_header, request_frame


def connect(address: str, timeout_s: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=timeout_s)


def send(connection: socket.socket, request: Any, version: int, correlation_id: int = 0) -> None:
    parts: list[bytes | bytearray | memoryview] = []
    writer(type(request), version)(request, parts)
    frame = request_frame(correlation_id, "chaos", type(request), version, parts)
    connection.sendall(b"".join(frame))


def receive(connection: socket.socket, kind: type[Any], version: int) -> Any:
    """The next answer; raises ConnectionError or TimeoutError if there is none."""
    (size,) = struct.unpack(">i", _take(connection, 4))
    frame = memoryview(_take(connection, size))
    _, position = read_response_header(frame, 0, size, kind, version)
    response, _ = reader(kind, version)(frame, position, size)
    return response


def _take(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionResetError("the node closed the connection")
        data += more
    return data
