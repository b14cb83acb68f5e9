"""Configuration of the etcd client: endpoints, credentials, key prefix.

Owns `EtcdConfig` with its checks, and TLS contexts from its files. Invariants: a password never
appears in a repr or an error; replaced files (certificates are replaced every few weeks) are read
again for the next connection.
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
    """Validated configuration: raises ValueError with a text for the operator."""

    endpoints: tuple[str, ...]
    """`http://host:port` or `https://host:port`, all of one etcd cluster; the client uses the first
    that works."""
    prefix: str = DEFAULT_PREFIX
    """Prefix of every key, so that several clusters can share one etcd."""
    ca_file: str | None = None
    """CA certificates for https; the system's when None."""
    cert_file: str | None = None
    key_file: str | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    timeout_ms: int = 5_000
    """Timeout of one request, including retries on other endpoints."""

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("missing etcd endpoint: give at least one, as http://127.0.0.1:2379")
        for text in self.endpoints:
            parse_endpoint(text)
        if not self.prefix.startswith("/") or self.prefix.endswith("/"):
            raise ValueError(f"etcd prefix '{self.prefix}' must begin with '/' and not end with it")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("etcd client certificate and key belong together: give both or none")
        if self.password and not self.user:
            raise ValueError("an etcd password is given without a user: give both")
        if self.timeout_ms < 100:
            raise ValueError(f"etcd timeout of {self.timeout_ms} ms is below the minimum of 100 ms")


def parse_endpoint(text: str) -> EtcdEndpoint:
    """Parses an endpoint. Raises ValueError for an invalid one; never quotes credentials."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an etcd endpoint must not contain user and password; set them separately")
    try:
        port = parts.port
    except ValueError:
        port = 0
    is_plain = not (parts.path.strip("/") or parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or port == 0:
        raise ValueError(f"invalid etcd endpoint '{text}': use the form http://host:2379")
    return EtcdEndpoint(parts.hostname, port or PORT, parts.scheme == "https")


class Tls:
    """TLS context for the next connection, reloaded when its files change."""

    def __init__(self, config: EtcdConfig) -> None:
        self._config = config
        self._files = [f for f in (config.ca_file, config.cert_file, config.key_file) if f]
        self._seen: list[tuple[int, int]] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Returns the context. Raises ConnectionError for an unusable file, which may just be
        being replaced."""
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
