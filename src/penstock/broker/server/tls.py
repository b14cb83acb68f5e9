"""TLS of a listener: contexts from PEM files, reloading of certificates, names of clients.

As in Kafka, one PEM file has the key and its certificates (`ssl.keystore.location`), another the
CAs of clients (`ssl.truststore.location`). Changed files make a new context, which replaces the old
one as a whole: a CA that was removed from the truststore is not trusted any more. If the files do
not load, the old context stays in use. Open connections keep their context.
"""

import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode, Refused

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
SHORT = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Short names of attributes (RFC 2253)."""
ESCAPED = ',+"\\<>;'


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS settings of a listener."""

    key_file: str
    key_password: str | None = None
    ca_file: str | None = None
    client_auth: str = "none"
    versions: Sequence[str] = ("TLSv1.2", "TLSv1.3")


class Certificates:
    """TLS context of the current files."""

    def __init__(
        self, config: TlsConfig, make: Callable[[TlsConfig], ssl.SSLContext] | None = None
    ) -> None:
        """`make` defaults to `listening_context`. Raises Refused, naming the invalid file."""
        self._config = config
        self._make = make or listening_context
        self._stamps = self._look()
        self.context = self._make(config)

    def current(self) -> ssl.SSLContext:
        """Returns the context for the next connection."""
        return self.context

    def reloaded(self) -> ssl.SSLContext | None:
        """Loads a context if the files have changed; runs in a worker. Raises Refused."""
        stamps = self._look()
        if stamps == self._stamps:
            return None
        self._stamps = stamps
        return self._make(self._config)

    def _look(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in (self._config.key_file, self._config.ca_file) if path]


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def listening_context(config: TlsConfig) -> ssl.SSLContext:
    """Creates the TLS context of a listener. Raises Refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    wanted = sorted(VERSIONS[name] for name in config.versions if name in VERSIONS)
    if not wanted:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"ssl.enabled.protocols needs one of {', '.join(VERSIONS)}"
        )
    context.minimum_version, context.maximum_version = wanted[0], wanted[-1]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_mode = CLIENT_AUTH[config.client_auth]
    if config.client_auth != "none" and not config.ca_file:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"ssl.client.auth={config.client_auth} needs ssl.truststore.location: set it to the "
            "CA certificates of clients, in PEM",
        )
    _load(context, config)
    return context


def _load(context: ssl.SSLContext, config: TlsConfig) -> None:
    path = config.key_file
    try:
        # A function, since OpenSSL would prompt at the terminal without a password.
        context.load_cert_chain(path, password=lambda: config.key_password or "")
        if config.ca_file:
            path = config.ca_file
            context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"cannot use {path} for TLS: {why}; a keystore must hold a private key and its "
            "certificates in PEM, a truststore certificates",
        ) from error


def distinguished_name(certificate: dict[str, Any]) -> str:
    """Formats the subject of a certificate (RFC 2253): the most specific part first."""
    groups = reversed(certificate.get("subject", ()))
    parts = (
        "+".join(f"{SHORT.get(name, name)}={_escaped(value)}" for name, value in group)
        for group in groups
    )
    return ",".join(parts)


def _escaped(value: str) -> str:
    text = "".join(f"\\{char}" if char in ESCAPED else char for char in value)
    if text.startswith((" ", "#")):
        text = "\\" + text
    if text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1] + "\\ "
    return text
