"""A flood of wrong passwords: a client with the right one is accepted before the flood ends.

Both use a mechanism that costs a check at the broker (PLAIN), and neither was cached. The order is
measured by the broker's count of failed logins, not by time.
"""

import re
import socket
import struct
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.guarded import Guarded

FLOOD = 600
FAILED = re.compile(r"^penstock_failed_logins_total (\d+)", re.MULTILINE)
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    guarded = Guarded(directory, **{"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})
    try:
        yield guarded
    finally:
        assert guarded.process.stop() == 0, guarded.process.log()


def frame(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", key, version, 1, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body


def say(broker: Guarded, source: str, name: str, password: str) -> socket.socket:
    """A connection that has sent its credentials, and has no answer yet."""
    host, _, port = broker.process.bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)), SECONDS_MAX, (source, 0))
    token = f"\0{name}\0{password}".encode()
    connection.sendall(
        frame(SASL_HANDSHAKE, 1, struct.pack(">h", 5) + b"PLAIN")
        + frame(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
    )
    return connection


def is_let_in(connection: socket.socket) -> bool:
    with connection, connection.makefile("rb") as answers:
        code = -1
        for _ in range(2):
            (size,) = struct.unpack(">i", answers.read(4))
            (code,) = struct.unpack_from(">h", answers.read(size), 4)
        return code == 0


def failed(broker: Guarded) -> int:
    with urllib.request.urlopen(broker.process.http + "/metrics", timeout=SECONDS_MAX) as reply:
        found = FAILED.search(reply.read().decode())
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(
    ("source", "user"), [("127.0.0.2", "ann"), ("127.0.0.1", "bob")], ids=["elsewhere", "same"]
)
def test_flood_of_wrong_passwords_does_not_delay_other_users(
    broker: Guarded, source: str, user: str
) -> None:
    broker.add_user(user, "her own")
    before = failed(broker)
    with ExitStack() as flood:
        for number in range(FLOOD):
            flood.enter_context(say(broker, source, "admin", f"wrong {number}"))
        assert is_let_in(say(broker, "127.0.0.1", user, "her own"))
        assert failed(broker) - before < FLOOD // 2
    # Checks of disconnected clients are skipped; the rest run, however many there were.
    assert not is_let_in(say(broker, source, "admin", "wrong"))
    assert failed(broker) - before < FLOOD // 2


def test_verified_user_does_not_wait_behind_a_flood(broker: Guarded) -> None:
    """Not even behind other clients at the same address that give as many names as they are."""
    broker.add_user("cid", "his own")
    assert is_let_in(say(broker, "127.0.0.1", "cid", "his own"))
    before = failed(broker)
    with ExitStack() as flood:
        for number in range(FLOOD):
            flood.enter_context(say(broker, "127.0.0.1", f"name {number}", "wrong"))
        assert is_let_in(say(broker, "127.0.0.1", "cid", "his own"))
        assert failed(broker) - before < FLOOD // 2
