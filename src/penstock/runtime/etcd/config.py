"""How to reach etcd: endpoints, credentials, the part of its keys that is ours.

Owns: `EtcdConfig` and its checks, TLS contexts made from its files. Invariants: a password never
shows in a repr or an error; files that were replaced (certificates are, every few weeks) are
read again for the next connection.
"""

import os
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from penstock.runtime.etcd.http import EtcdEndpoint

PORT = 2379
DEFAULT_PREFIX = "/penstock/default"


@dataclass(frozen=True, slots=True)
class EtcdConfig:
    """Checked when made: raises ValueError with a text for the person who wrote it."""

    endpoints: tuple[str, ...]
    """`http://host:port` or `https://host:port`, all of one etcd; the first that works is used."""
    prefix: str = DEFAULT_PREFIX
    """What every key begins with, so that several clusters can share one etcd."""
    ca_file: str | None = None
    """Whom to trust with https; the system's authorities when not given."""
    cert_file: str | None = None
    key_file: str | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    timeout_ms: int = 5_000
    """How long one request may take, trying other endpoints included."""

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("no etcd endpoint is given, e.g. http://127.0.0.1:2379")
        for text in self.endpoints:
            parse_endpoint(text)
        if not self.prefix.startswith("/") or self.prefix.endswith("/"):
            raise ValueError(f"etcd prefix '{self.prefix}' must begin, and not end, with '/'")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("etcd client certificate and key come together: give both or none")
        if self.password and not self.user:
            raise ValueError("an etcd password without a user")
        if self.timeout_ms < 100:
            raise ValueError(f"etcd timeout of {self.timeout_ms} ms is below 100 ms")


def parse_endpoint(text: str) -> EtcdEndpoint:
    """Raises ValueError for what is no address of etcd; never quotes credentials."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("user and password do not belong into an etcd endpoint; set them apart")
    try:
        port = parts.port
    except ValueError:
        port = 0
    is_plain = not (parts.path.strip("/") or parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or port == 0:
        raise ValueError(f"etcd endpoint '{text}' is not like http://host:2379")
    return EtcdEndpoint(parts.hostname, port or PORT, parts.scheme == "https")


class Tls:
    """The context for the next connection."""

    def __init__(self, config: EtcdConfig) -> None:
        self._config = config
        self._files = [f for f in (config.ca_file, config.cert_file, config.key_file) if f]
        self._seen: list[tuple[int, int]] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Raises ConnectionError when a file cannot be used: it may be being replaced."""
        config = self._config
        try:
            seen = [(s.st_mtime_ns, s.st_ino) for s in map(os.stat, self._files)]
            if self._context is None or seen != self._seen:
                context = ssl.create_default_context(cafile=config.ca_file)
                context.set_alpn_protocols(["http/1.1"])
                if config.cert_file is not None:
                    context.load_cert_chain(config.cert_file, config.key_file)
                self._context, self._seen = context, seen
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(self._files)
            raise ConnectionError(
                f"cannot use the TLS files for etcd ({files}): {error}"
            ) from error
        return self._context
