"""A live broker with invalid input: it stays up, stays small, and serves the next valid client.

Every declared API gets valid requests with random content, truncated ones, with flipped bits, with
absurd counts and with empty arrays, at every version. Besides those come frames that are not
requests, and batches that contradict their header. `PENSTOCK_FUZZ_SEED` replays a run,
`PENSTOCK_FUZZ_ROUNDS` makes it longer.
"""

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import crc32c
import pytest

from bench import probe, proc
from penstock.base.errors import ErrorCode
from penstock.wire.codec import writer
from penstock.wire.framing import request_frame
from penstock.wire.messages import REQUESTS
from penstock.wire.schema import wire_of
from tests.brokers import PenstockProcess
from tests.wire.instances import make

pytestmark = pytest.mark.processes

SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", 1 if os.environ.get("CI") else time.time_ns()))
ROUNDS = int(os.environ.get("PENSTOCK_FUZZ_ROUNDS", "3"))
RSS_GROWTH_MIB_MAX = 64
API_VERSIONS, PRODUCE = 18, 0
TOPIC = "good-records"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    """A broker of this module's own, so that its log and memory belong to these tests only."""
    process = PenstockProcess(tmp_path_factory.mktemp("fuzz") / "data")
    produce_one(process.bootstrap)
    yield process
    assert process.stop() == 0, process.log()


@pytest.fixture(autouse=True)
def _unharmed(target: PenstockProcess) -> Iterator[None]:
    """Whatever a test does: the broker runs, serves, has not grown and has not complained."""
    before_mib = proc.rss_mib(target.pid)
    yield
    assert target.running, target.log()
    produce_one(target.bootstrap)
    assert "Traceback" not in target.log(), target.log()
    assert "unexpected error" not in target.log(), target.log()
    grown_mib = proc.rss_mib(target.pid) - before_mib
    assert grown_mib < RSS_GROWTH_MIB_MAX, f"grew by {grown_mib:.0f} MiB"


def produce_one(bootstrap: str) -> None:
    """The well-behaved client: one record, acknowledged."""
    deadline = time.monotonic() + 20
    while True:
        probe.partitions_served(bootstrap)
        error = produce_answer(bootstrap, TOPIC, probe.single_record_batch(b"good", 1))
        if error == ErrorCode.NONE:
            return
        assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if time.monotonic() >= deadline:
            raise TimeoutError("the topic was never made")
        make_topic(bootstrap)


def make_topic(bootstrap: str) -> None:
    """A Metadata request creates the topic, as a Kafka client's would."""
    name = TOPIC.encode()
    body = struct.pack(">ih", 1, len(name)) + name + b"\1"
    exchange(bootstrap, probe.frame(probe.METADATA, 5, 1, body))


def exchange(bootstrap: str, sent: bytes, wait_s: float = 5.0) -> bytes | None:
    """Send bytes and return the first answer frame; None when the broker closed instead."""
    with probe.connect(bootstrap, wait_s) as connection:
        connection.sendall(sent)
        try:
            size = struct.unpack(">i", probe.receive(connection, 4))[0]
            return probe.receive(connection, size)
        except (probe.ProbeFailed, ConnectionResetError):
            return None


def throw(bootstrap: str, frames: list[bytes]) -> None:
    """Send each on one connection after another, without caring what becomes of it."""
    for sent in frames:
        try:
            with probe.connect(bootstrap, 0.02) as connection:
                connection.sendall(sent)
                connection.recv(65_536)
        except (TimeoutError, ConnectionError):
            # A long poll, an incomplete frame or a closed connection: all are fine answers.
            continue


def produce_answer(bootstrap: str, topic: str, batch: bytes) -> int:
    """The error code of a produce request that carries `batch`."""
    name = topic.encode()
    body = struct.pack(">hhii", -1, -1, 30_000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    answer = exchange(bootstrap, probe.frame(PRODUCE, 7, 1, body))
    assert answer is not None, "the broker closed the connection"
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name) + 4 + 4)
    return int(code)


def framed(declared: type[Any], version: int, instance: Any) -> bytes:
    parts: list[Any] = []
    writer(declared, version)(instance, parts)
    return b"".join(request_frame(7, "fuzz", declared, version, parts))


def emptied(instance: Any) -> Any:
    """The same message with every array empty."""
    for name in (field.name for field in wire_of(type(instance)).fields):
        if isinstance(getattr(instance, name), list):
            setattr(instance, name, [])
    return instance


def resized(frame: bytes) -> bytes:
    """A frame whose length says what it now holds."""
    return struct.pack(">i", len(frame) - 4) + frame[4:]


def spoiled(chance: random.Random, frame: bytes) -> list[bytes]:
    """Ways in which a good frame goes bad."""
    cut = chance.randrange(4, len(frame))
    flipped = bytearray(frame)
    for _ in range(chance.randint(1, 8)):
        flipped[chance.randrange(8, len(flipped))] ^= 1 << chance.randrange(8)
    absurd = bytearray(frame)
    at = chance.randrange(8, len(absurd))
    count = chance.choice(
        [b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f", b"\x7f\xff"]
    )
    absurd[at : at + len(count)] = count
    return [
        frame[:cut],
        resized(frame[:cut]),
        resized(frame + chance.randbytes(9)),
        resized(bytes(flipped)),
        resized(bytes(absurd)),
    ]


@pytest.mark.parametrize("key", sorted(REQUESTS), ids=lambda key: wire_of(REQUESTS[key]).name)
def test_every_api_survives_invalid_requests(target: PenstockProcess, key: int) -> None:
    chance = random.Random(f"{SEED} {key}")
    declared = REQUESTS[key]
    low, high = wire_of(declared).versions
    print(f"PENSTOCK_FUZZ_SEED={SEED}")
    for _ in range(ROUNDS):
        version = chance.randint(low, high)
        frame = framed(declared, version, make(chance, declared, version))
        throw(target.bootstrap, [frame, *spoiled(chance, frame)])
    for version in range(low, high + 1):
        empty = emptied(make(chance, declared, version))
        throw(target.bootstrap, [framed(declared, version, empty)])


@pytest.mark.parametrize(
    "sent",
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x80\0\0\0",
        b"\0\0\0\0",
        b"\0\0\0\1\0",
        b"\0\0\0\7" + bytes(7),
        b"GET / HTTP/1.1\r\nHost: penstock\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303"),
    ],
    ids=["huge", "minus-one", "lowest", "zero", "one-byte", "short-header", "http", "tls"],
)
def test_invalid_frame_closes_the_connection(target: PenstockProcess, sent: bytes) -> None:
    assert exchange(target.bootstrap, sent) is None


def test_random_bytes_close_the_connection_or_wait_for_more(target: PenstockProcess) -> None:
    chance = random.Random(SEED)
    throw(target.bootstrap, [chance.randbytes(chance.randrange(1, 5_000)) for _ in range(100)])


def test_unknown_api_closes_the_connection(target: PenstockProcess) -> None:
    for key in (-1, 4, 999, 32_767):
        assert exchange(target.bootstrap, probe.frame(key, 0, 1, bytes(8))) is None


def test_unknown_version_closes_the_connection(target: PenstockProcess) -> None:
    for version in (-1, 99, 32_767):
        assert exchange(target.bootstrap, probe.frame(probe.METADATA, version, 1, bytes(8))) is None


def test_unknown_api_versions_version_is_answered_at_version_0(
    target: PenstockProcess,
) -> None:
    answer = exchange(target.bootstrap, probe.frame(API_VERSIONS, 99, 41, b"\0\2a\2b\0"))
    assert answer is not None
    correlation_id, code, count = struct.unpack_from(">ihi", answer)
    assert (correlation_id, code) == (41, ErrorCode.UNSUPPORTED_VERSION)
    assert count >= 1


def test_batch_with_a_wrong_crc_is_corrupt(target: PenstockProcess) -> None:
    batch = bytearray(probe.single_record_batch(b"value", 1))
    batch[-1] ^= 1
    assert produce_answer(target.bootstrap, TOPIC, bytes(batch)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_batch_of_another_format_is_refused(target: PenstockProcess, magic: int) -> None:
    batch = bytearray(probe.single_record_batch(b"value", 1))
    batch[16] = magic
    code = ErrorCode.INVALID_RECORD if magic < 2 else ErrorCode.CORRUPT_MESSAGE
    assert produce_answer(target.bootstrap, TOPIC, bytes(batch)) == code


def test_batch_with_a_false_record_count_is_refused(target: PenstockProcess) -> None:
    for at, lie in ((57, 2**31 - 1), (57, 0), (57, -1), (23, 5), (23, -1), (8, 2**31 - 1)):
        batch = bytearray(probe.single_record_batch(b"value", 1))
        struct.pack_into(">i", batch, at, lie)
        struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
        assert produce_answer(target.bootstrap, TOPIC, bytes(batch)) != ErrorCode.NONE, (at, lie)


def test_every_damaged_byte_of_a_batch_is_noticed(target: PenstockProcess) -> None:
    whole = probe.single_record_batch(b"value", 1)
    # The first eight bytes (base offset) and the leader epoch are the broker's to write.
    for at in [*range(8, 12), *range(16, len(whole))]:
        batch = bytearray(whole)
        batch[at] ^= 0x55
        assert produce_answer(target.bootstrap, TOPIC, bytes(batch)) != ErrorCode.NONE, at


def test_producing_to_an_unknown_topic_is_refused(target: PenstockProcess) -> None:
    batch = probe.single_record_batch(b"value", 1)
    answer = produce_answer(target.bootstrap, "unknown-topic", batch)
    assert answer == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_many_half_open_connections_take_little_memory(target: PenstockProcess) -> None:
    """Each promises a megabyte and sends four bytes of it."""
    before_mib = proc.rss_mib(target.pid)
    waiting: list[socket.socket] = []
    try:
        for _ in range(150):
            connection = probe.connect(target.bootstrap)
            connection.sendall(b"\0\x0f\0\0" + bytes(4))
            waiting.append(connection)
        produce_one(target.bootstrap)
        assert proc.rss_mib(target.pid) - before_mib < RSS_GROWTH_MIB_MAX
    finally:
        for connection in waiting:
            connection.close()
