"""Hostile input to the HTTP port of a broker process: answers, and nothing in its log.

Requests with bytes that are not text, requests that ask to change protocols (Java's HttpClient and
`curl --http2` do so by default), and peers that hang up at every point, in every dialect.
"""

import socket
import struct
from collections.abc import Iterator

import pytest

from tests.brokers import PenstockProcess
from tests.waiting import eventually

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
SQS = b"x-amz-target: AmazonSQS.SendMessage\r\ncontent-type: application/x-amz-json-1.0\r\n"
CONSOLE = b"x-penstock-console: 1\r\n"
NOT_TEXT = b"\xff\xfe"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    process = PenstockProcess(tmp_path_factory.mktemp("outsiders") / "data", {})
    yield process
    assert process.stop() == 0


def request(method: str, path: str, body: bytes = b"", headers: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + headers + b"\r\n" + body


def connect(broker: PenstockProcess) -> socket.socket:
    host, _, port = broker.http.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def ask(broker: PenstockProcess, raw: bytes) -> tuple[int, bytes]:
    """Status and body of one answer."""
    with connect(broker) as peer, peer.makefile("rb") as stream:
        peer.sendall(raw)
        status = int(stream.readline().split()[1])
        length = 0
        while line := stream.readline().strip().lower():
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return status, stream.read(length)


def test_every_protocol_accepts_a_body_with_an_upgrade_header(
    broker: PenstockProcess,
) -> None:
    def post(path: str, body: bytes, headers: bytes = b"") -> bytes:
        status, said = ask(broker, request("POST", path, body, H2C + headers))
        assert status in (200, 201), said
        return said

    assert b"offset" in post("/topics/t/messages", b'{"payload": "over h2c"}')
    assert b"QueueUrl" in post("/", b"Action=CreateQueue&QueueName=q")
    url = f"{broker.http}/000000000000/q".encode()
    message = b'{"QueueUrl": "' + url + b'", "MessageBody": "over h2c"}'
    assert b"MessageId" in post("/", message, SQS)
    form = b"Version=2010-03-31&Action=CreateTopic&Name=s"
    assert b"TopicArn" in post("/", form)
    assert b"id" in post("/subjects/s/versions", b'{"schema": "\\"string\\""}')


def test_binary_garbage_is_a_4xx_without_a_traceback(broker: PenstockProcess) -> None:
    assert ask(broker, request("POST", "/topics/t/messages", b'{"payload": 1}'))[0] == 200
    values = [b'"' + NOT_TEXT + b'"', b"[" + b'"' + NOT_TEXT + b'"]', NOT_TEXT]
    rows = [
        *(("/topics/t/messages", b'{"payload": %s}' % value, b"") for value in values),
        ("/topics/t/messages", b'{"payload": 1, "headers": {"%s": 1}}' % NOT_TEXT, b""),
        ("/topics/t/messages", b'{"messages": [{"payload": {"%s": 1}}]}' % NOT_TEXT, b""),
        ("/ack", b'{"receipt": "%s"}' % NOT_TEXT, b""),
        ("/offsets/commit", b'{"group": "%s"}' % NOT_TEXT, b""),
        ("/topics", b'{"name": "%s"}' % NOT_TEXT, b""),
        ("/", b'{"QueueUrl": "q", "MessageBody": "%s"}' % NOT_TEXT, SQS),
        ("/", b"Action=SendMessage&MessageBody=" + NOT_TEXT, b""),
        ("/subjects/s/versions", b'{"schema": "%s"}' % NOT_TEXT, b""),
        ("/console/api/login", b'{"user": "%s", "password": "x"}' % NOT_TEXT, CONSOLE),
        ("/topics/%ff/messages", b"{}", b""),
        ("/subjects/%ff/versions", b"{}", b""),
    ]
    for path, body, headers in rows:
        status, said = ask(broker, request("POST", path, body, headers))
        assert 400 <= status < 500, (path, body, said)
    for path in ("/topics/%ff", "/groups/%ff", "/topics/t/poll?group=%ff", "/console/%ff"):
        assert ask(broker, request("GET", path))[0] == 400
    assert "Traceback" not in broker.log()


def test_disconnecting_client_leaves_no_traceback(broker: PenstockProcess) -> None:
    paths = ("/metrics", "/topics", "/topics/t/stream?group=s", "/subjects", "/console")
    attempts = [request("GET", path) * count for path in paths for count in (1, 5)]
    message = request("POST", "/topics/t/messages", b'{"payload": 1}')
    attempts += [message[:-5], message * 4 + message[:-5]]
    attempts += [request("POST", "/", b"Action=ListQueues", headers)[:-4] for headers in (b"", SQS)]
    attempts.append(request("POST", "/subjects/s/versions", b'{"schema": "x"}')[:-4])
    attempts.append(request("POST", "/console/api/login", b'{"user": "x"}', CONSOLE)[:-4])
    for raw in attempts:
        for is_reset in (False, True):
            peer = connect(broker)
            peer.sendall(raw)
            if is_reset:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
    # The next request is served, and by then all of those have been handled.
    eventually(lambda: b"\npenstock_" in ask(broker, request("GET", "/metrics"))[1], "metrics")
    assert "Traceback" not in broker.log()
