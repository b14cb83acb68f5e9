"""Planted secrets, and a search of everything that a broker says for them."""

import base64
import contextlib
import io
import socket
import struct
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from bench import probe
from tests.brokers import COMMAND
from tests.guarded import ADMIN, Guarded

WRONG = "planted-wrong-password"
STATIC = "planted-static-secret"
TOKEN = "planted.token.value"


def test_secrets_do_not_leak(tmp_path: Path) -> None:
    """Not by logs of failed logins, nor configs, metrics, pages, users, keys or a debug bundle."""
    config = tmp_path / "node.toml"
    config.write_text(f'[broker]\n"sqs.credentials" = "KEY:{STATIC}"\n')
    sets = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sqs.credentials": f"KEY:{STATIC}",
    }
    guarded = Guarded(tmp_path, **sets)
    broker, run = guarded.process, guarded.run
    try:
        _, made = guarded.add_key("alice")
        secrets = [ADMIN[1], WRONG, STATIC, TOKEN, made]
        said = [log_in_wrongly(broker.bootstrap)]
        said += [get(broker.http, "/topics", header) for header in headers()]
        said += [get(broker.http, path, "") for path in ("/", "/metrics", "/version", "/docs")]
        said.append(run("config", "list", "--format", "json"))
        said += [run("user", "list"), run("user", "key", "list")]
        bundle = tmp_path / "bundle.tar.gz"
        run("debug", "bundle", "-o", str(bundle), "--config", str(config), "--data", str(tmp_path),
            "--log", str(tmp_path / "data.log"), "--http", broker.http)  # fmt: skip
        said += contents(bundle)
    finally:
        broker.stop()
    said.append(broker.log())
    assert "login from 127.0.0.1 failed" in broker.log(), "it was tried"
    assert "sqs.credentials is on the command line" in broker.log()
    for secret in secrets:
        for text in said:
            assert secret not in text
            assert base64.b64encode(secret.encode()).decode().rstrip("=") not in text


def test_broker_with_world_readable_secrets_does_not_start() -> None:
    # Not below tmp_path, which other users cannot enter.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        password = directory / "admin.password"
        password.write_text("secret\n")
        password.chmod(0o644)
        config = directory / "node.toml"
        config.write_text('"ssl.key.password" = "secret"\n')
        config.chmod(0o600)
        command = [COMMAND, "up", "--kafka-port", "0", "--http-port", "0"]
        command += ["--data", str(directory / "data"), "--config", str(config)]
        guarded = ["--set", f"admin.password.file={password}"]
        assert f"chmod 600 {password}" in refused([*command, *guarded])
        config.chmod(0o644)
        assert f"chmod 600 {config}" in refused(command)
        assert not (directory / "data").exists()


def refused(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done
    assert not done.stdout
    return done.stderr


def headers() -> list[str]:
    basic = base64.b64encode(f"admin:{WRONG}".encode()).decode()
    key = "KEY/20260101/us-east-1/sqs/aws4_request"
    return [
        f"Basic {basic}",
        f"Bearer {TOKEN}",
        f"AWS4-HMAC-SHA256 Credential={key}, SignedHeaders=host, Signature={STATIC}",
    ]


def get(http: str, path: str, authorization: str) -> str:
    request = urllib.request.Request(http + path)
    if authorization:
        request.add_header("authorization", authorization)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return str(reply.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return str(error.headers) + error.read().decode()


def log_in_wrongly(bootstrap: str) -> str:
    """Logs in by PLAIN with a wrong password; returns the broker's answer."""
    with probe.connect(bootstrap) as connection:
        connection.sendall(probe.frame(17, 1, 1, struct.pack(">h", 5) + b"PLAIN"))
        answer(connection)
        message = f"\0admin\0{WRONG}".encode()
        connection.sendall(probe.frame(36, 1, 2, struct.pack(">i", len(message)) + message))
        return answer(connection)


def answer(connection: socket.socket) -> str:
    with contextlib.suppress(ConnectionError):
        (size,) = struct.unpack(">i", probe.receive(connection, 4))
        return probe.receive(connection, size).decode("latin-1")
    return ""


def contents(bundle: Path) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(bundle.read_bytes())) as tar:
        files = [tar.extractfile(entry) for entry in tar.getmembers()]
        return [file.read().decode("utf-8", "replace") for file in files if file is not None]
