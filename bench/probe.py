"""Handmade Kafka requests, for measurements that client libraries do not allow.

`partitions_served` requests metadata as soon as a port opens. `pipeline` keeps a
window of single-record produce requests in flight on one connection, from frames built once, so
that the broker does nearly all the work. Uses old versions with fixed layout that Kafka 4 and
Penstock both serve (Metadata v5, Produce v7).
"""

import socket
import struct
import time

import crc32c

METADATA, PRODUCE = 3, 0
CLIENT = struct.pack(">h", 5) + b"bench"
BYTES_MAX = 1 << 20


class ProbeFailed(Exception):
    """The broker replied with an error or not at all."""


def connect(bootstrap: str, timeout_s: float = 30.0) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def frame(api: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Frame of a request with header v1."""
    header = struct.pack(">hhi", api, version, correlation_id) + CLIENT
    return struct.pack(">i", len(header) + len(body)) + header + body


def receive(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ProbeFailed("the broker closed the connection")
        parts += part
    return bytes(parts)


class _Fields:
    """Reader of Kafka's fixed-layout fields."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, layout: str) -> int:
        (value,) = struct.unpack_from(">" + layout, self._data, self._at)
        self._at += struct.calcsize(">" + layout)
        return int(value)

    def string(self) -> str:
        length = max(0, self.take("h"))
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def skip_ints(self) -> None:
        count = self.take("i")
        self._at += 4 * count


def partitions_served(bootstrap: str) -> dict[str, int]:
    """Number of partitions with a leader by topic, from one metadata request."""
    with connect(bootstrap) as connection:
        connection.sendall(frame(METADATA, 5, 1, struct.pack(">i?", -1, False)))
        size = struct.unpack(">i", receive(connection, 4))[0]
        fields = _Fields(receive(connection, size))
    fields.take("i"), fields.take("i")  # correlation id, throttle time
    for _ in range(fields.take("i")):
        fields.take("i"), fields.string(), fields.take("i"), fields.string()
    fields.string(), fields.take("i")  # cluster id, controller
    served: dict[str, int] = {}
    for _ in range(fields.take("i")):
        fields.take("h")
        topic = fields.string()
        fields.take("b")
        served[topic] = 0
        for _ in range(fields.take("i")):
            fields.take("h"), fields.take("i")
            served[topic] += fields.take("i") >= 0
            for _ in ("replicas", "in-sync replicas", "offline replicas"):
                fields.skip_ints()
    return served


def wait_served(bootstrap: str, partitions: int = 0, timeout_s: float = 120.0) -> None:
    """Returns at the first metadata reply with at least so many partitions with a leader."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if sum(partitions_served(bootstrap).values()) >= partitions:
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise ProbeFailed(f"{bootstrap} serves no {partitions} partitions")
        time.sleep(0.002)


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def single_record_batch(value: bytes, timestamp_ms: int) -> bytes:
    """Record batch of format 2 with one record, without key, headers and producer."""
    body = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    record = _varint(len(body)) + body
    rest = struct.pack(">hiqqqhii", 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1) + record
    head = struct.pack(">iBI", -1, 2, crc32c.crc32c(rest))
    return struct.pack(">qi", 0, len(head) + len(rest)) + head + rest


def produce_frame(topic: str, value: bytes) -> bytes:
    batch = single_record_batch(value, time.time_ns() // 1_000_000)
    name = topic.encode()
    body = struct.pack(">hhii", -1, -1, 30_000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return frame(PRODUCE, 7, 7, body)


def pipeline(bootstrap: str, topic: str, count: int, size: int, window: int) -> float:
    """Seconds for `count` single-record produce requests, `window` of them in flight."""
    one = produce_frame(topic, bytes(size))
    burst = memoryview(one * window)
    # Every reply has this layout: length, correlation id, one topic, one partition, throttle.
    answer_size = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4 + 2 + 8 + 8 + 8 + 4
    error_at = answer_size - 4 - 8 - 8 - 8 - 2
    with connect(bootstrap) as connection:
        started = time.monotonic()
        sent, answered, rest = min(window, count), 0, b""
        connection.sendall(burst[: sent * len(one)])
        while answered < count:
            data = connection.recv(BYTES_MAX)
            if not data:
                raise ProbeFailed("the broker closed the connection")
            data = rest + data
            whole = len(data) // answer_size
            for at in range(0, whole * answer_size, answer_size):
                if data[at + error_at : at + error_at + 2] != b"\0\0":
                    raise ProbeFailed(f"a produce request was refused: {data[at:][:answer_size]!r}")
            answered += whole
            rest = data[whole * answer_size :]
            more = min(whole, count - sent)
            connection.sendall(burst[: more * len(one)])
            sent += more
        return time.monotonic() - started
