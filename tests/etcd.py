"""One real etcd as a child process, for tests: started, killed, paused, restarted in place.

Owns exactly the processes it starts. The ports stay the same over restarts. Requests of a test
beside the store under test (compaction, enabling authentication) go over the same JSON gateway but
with the standard library, so that the two can disagree.
"""

import base64
import json
import os
import signal
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.server.local_cluster import EtcdFailed, etcd_command, find_etcd
from tests.ports import free_port
from tests.processes import LoggedProcess

READY_S = 60.0


def require_etcd() -> str:
    """The path of etcd. In CI its absence is a failure, elsewhere a skip with a reason."""
    try:
        return find_etcd()
    except EtcdFailed as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


class EtcdProcess(LoggedProcess):
    """A cluster of one member, started by the constructor; after `kill`, use `start`."""

    def __init__(
        self,
        data_dir: Path,
        options: Sequence[str] = (),
        *,
        tls: ssl.SSLContext | None = None,
        peer_port: int = 0,
        started: bool = True,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """`options` come after the default ones and override them; `tls` is for requests to it;
        `prefix` goes before the command, e.g. to run it in a namespace.
        """
        super().__init__(data_dir.with_name(data_dir.name + ".log"))
        self.data_dir = data_dir
        self.port = free_port()
        self.url = f"{'https' if tls else 'http'}://{host}:{self.port}"
        self._tls = tls
        self._token = ""
        command = etcd_command(require_etcd(), str(data_dir), self.port, peer_port or free_port())
        urls = [f"--{name}-client-urls={self.url}" for name in ("listen", "advertise")]
        self._command = [*prefix, *command, *urls, *options]
        if started:
            self.start()

    def start(self) -> None:
        """Returns when it serves."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.run(self._command)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                if self._ask("/health", None) == {"health": "true", "reason": ""}:
                    return
            except OSError:
                pass
            assert self.running, f"etcd ended:\n{self.all_logs()}"
            if time.monotonic() >= deadline:
                raise TimeoutError(f"etcd does not serve:\n{self.all_logs()}")
            time.sleep(0.02)

    @property
    def pids(self) -> list[int]:
        return [self.pid] if self.running else []

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.url,)

    @property
    def members(self) -> "list[EtcdProcess]":
        return [self]

    def all_logs(self) -> str:
        return self.log()[-4000:]

    # Stop, kill and pause.

    def stop(self, timeout_s: float = 60.0) -> int:
        if not self.running:
            return 0
        self.resume()
        return super().stop(timeout_s)

    def pause(self) -> None:
        """Sends SIGSTOP: connections stay, nothing is answered, until `resume`."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    # Requests.

    def ask(self, path: str, **request: Any) -> dict[str, Any]:
        """One call of the gateway; raises OSError for a refusal, with etcd's message."""
        return self._ask(path, request)

    def put(self, key: str, value: bytes) -> int:
        """Writes a key; returns the revision."""
        answer = self.ask("/v3/kv/put", key=_text(key.encode()), value=_text(value))
        return int(answer["header"]["revision"])

    def compact(self) -> int:
        revision = self.ask("/v3/kv/range", key=_text(b"x"))["header"]["revision"]
        self.ask("/v3/kv/compaction", revision=revision, physical=True)
        return int(revision)

    def end_leases(self) -> None:
        for lease in self.ask("/v3/lease/leases").get("leases", []):
            self.ask("/v3/lease/revoke", ID=lease["ID"])

    def require_passwords(self, users: Mapping[str, str], *prefixes: str) -> None:
        """Enables authentication: root, and users who may use only these prefixes."""
        self.ask("/v3/auth/user/add", name="root", password="root")
        self.ask("/v3/auth/role/add", name="root")
        self.ask("/v3/auth/user/grant", user="root", role="root")
        for user, password in users.items():
            self.ask("/v3/auth/user/add", name=user, password=password)
            self.ask("/v3/auth/role/add", name=user)
            self.ask("/v3/auth/user/grant", user=user, role=user)
            for prefix in prefixes:
                first, last = prefix.encode(), prefix.encode()[:-1] + bytes([ord(prefix[-1]) + 1])
                permission = {"permType": 2, "key": _text(first), "range_end": _text(last)}
                self.ask("/v3/auth/role/grant", name=user, perm=permission)
        self.ask("/v3/auth/enable")
        self._token = self.ask("/v3/auth/authenticate", name="root", password="root")["token"]

    def _ask(self, path: str, request: Mapping[str, Any] | None) -> dict[str, Any]:
        data = None if request is None else json.dumps(request).encode()
        headers = {"Authorization": self._token} if self._token else {}
        url = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(url, timeout=10, context=self._tls) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise OSError(f"etcd refused {path}: {error.read()!r}") from error


class EtcdCluster:
    """Several members on this machine; any minority may be killed or paused."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        ports = [free_port() for _ in range(count)]
        peers = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(ports))
        self.members = [
            EtcdProcess(
                directory / f"etcd-{i}",
                [f"--name=m{i}", f"--initial-cluster={peers}"],
                peer_port=port,
                started=False,
            )
            for i, port in enumerate(ports)
        ]
        for member in self.members:
            member.spawn()
        for member in self.members:
            member.wait_ready()

    @property
    def pids(self) -> list[int]:
        return [pid for member in self.members for pid in member.pids]

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members)

    def leader(self) -> EtcdProcess:
        """Asks every member that answers; waits until one leads."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            for member in self.members:
                if member.running:
                    status = member.ask("/v3/maintenance/status")
                    if status.get("leader") == status["header"]["member_id"]:
                        return member
            time.sleep(0.02)
        raise TimeoutError("no member leads")

    def stop(self) -> None:
        for member in self.members:
            member.stop()


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
