"""Penstock's own client over SASL_SSL, with the rights of an ordinary user."""

import asyncio
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import probe
from penstock import Refused, SyncClient
from penstock.client.connection import Address, ConnectionConfig, connect
from penstock.client.security_settings import parse_security
from penstock.runtime.random import SystemRandom
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.brokers import COMMAND
from tests.clients.secured import PASSWORD, TOPIC, USER, Secured, secured
from tests.guarded import ADMIN, Guarded
from tests.run_with import in_new_loop, run_with

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as found:
        yield found


def settings(broker: Secured, password: str = PASSWORD) -> dict[str, str]:
    return {
        "sasl.username": USER,
        "sasl.password": password,
        "ssl.ca.location": broker.ca_file,
    }


def test_user_publishes_and_reads_permitted_topics_only(broker: Secured) -> None:
    """He may not configure groups: where a new group begins stays as the administrator has it."""
    with SyncClient(broker.at("SASL_SSL"), security=settings(broker)) as client:
        assert client.poll(TOPIC, "workers", wait=0.5) == []
        assert client.publish(TOPIC, b"hello").offset >= 0
        (message,) = client.poll(TOPIC, "workers", wait=30)
        assert message.payload == b"hello"
        message.ack()
        with client.consume(TOPIC, "readers") as log:
            assert next(log).payload == b"hello"
        with pytest.raises(Refused):
            client.publish("forbidden", b"x")


def test_wrong_password_is_refused(broker: Secured) -> None:
    with pytest.raises(Refused):
        SyncClient(broker.at("SASL_SSL"), security=settings(broker, "wrong")).connect()


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sasl\.username"):
        SyncClient(security={"sasl.user": "bob"})


def test_user_list_requires_the_permission(broker: Secured, tmp_path: Path) -> None:
    path = tmp_path / "bob.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings(broker).items()))
    command = [COMMAND, "--command-config", str(path), "user", "list"]
    command += ["-b", broker.at("SASL_SSL")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "DESCRIBE on the cluster" in done.stderr
    assert not done.stdout


# -- sessions ---------------------------------------------------------------------------------

LIFETIME_MS = 1_000


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker on which logins have to be repeated."""
    sets = {
        "connections.max.reauth.ms": LIFETIME_MS,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    }
    guarded = Guarded(tmp_path_factory.mktemp("forgetful"), **sets)
    try:
        yield guarded
    finally:
        guarded.process.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@run_with(in_new_loop)
async def test_connection_survives_its_sessions_by_reauthentication(
    *, forgetful: Guarded, mechanism: str
) -> None:
    sets = {"sasl.username": ADMIN[0], "sasl.password": ADMIN[1], "sasl.mechanism": mechanism}

    secured = parse_security(sets, SystemRandom())
    host, _, port = forgetful.process.bootstrap.rpartition(":")
    address = Address(host, int(port))
    connection = await connect(address, ConnectionConfig(), secured.authenticate)
    loop = asyncio.get_running_loop()
    assert connection.session_lifetime_ms == LIFETIME_MS
    count, end = 0, loop.time() + 2.5 * LIFETIME_MS / 1000
    while loop.time() < end:
        ask = [connection.send(MetadataRequest(topics=[]), MetadataResponse) for _ in range(5)]
        await asyncio.gather(*ask)
        count += 5
    connection.close()
    await connection.wait_closed()
    assert count > 0


def test_connection_without_reauthentication_is_closed(forgetful: Guarded) -> None:
    with probe.connect(forgetful.process.bootstrap) as connection:

        def ask(api: int, version: int, body: bytes) -> bytes:
            connection.sendall(probe.frame(api, version, 1, body))
            (size,) = struct.unpack(">i", probe.receive(connection, 4))
            return probe.receive(connection, size)

        ask(17, 1, struct.pack(">h", 5) + b"PLAIN")
        message = "\0".join(("", *ADMIN)).encode()
        answer = ask(36, 1, struct.pack(">i", len(message)) + message)
        assert struct.unpack_from(">h", answer, 4) == (0,)
        assert struct.unpack(">q", answer[-8:]) == (LIFETIME_MS,)
        served, is_closed, deadline = 0, False, time.monotonic() + 30
        while not is_closed and time.monotonic() < deadline:
            try:
                ask(3, 1, struct.pack(">i", 0))
                served += 1
            except (OSError, probe.ProbeFailed):
                is_closed = True
        assert is_closed
        assert served, "it was served while its session lasted"
