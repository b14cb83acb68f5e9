"""TLS of a listener: its context from files in PEM, certificates that change while it serves, and
the name that a client's certificate gives it.

The key and its certificates are one file, as Kafka has it for PEM (`ssl.keystore.location`), those
who are believed about clients another (`ssl.truststore.location`). New files are tried on a
context of their own first: what does not load leaves the old ones in force. Connections that are
open keep what they have.
"""

import os
import ssl
from collections.abc import Sequence
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
"""Names of attributes as RFC 2253 shortens them."""
ESCAPED = ',+"\\<>;'


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """What a listener's TLS is made from."""

    key_file: str
    key_password: str | None = None
    ca_file: str | None = None
    client_auth: str = "none"
    versions: Sequence[str] = ("TLSv1.2", "TLSv1.3")


class Certificates:
    """One context, and the files behind it."""

    def __init__(self, config: TlsConfig) -> None:
        """Raises Refused, naming the file that does not do."""
        self._config = config
        self.context = _made(config)
        self._stamps = self._look()

    def has_news(self) -> bool:
        """Whether the files have changed and would do, for workers. Raises Refused if not."""
        stamps = self._look()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        _made(self._config)
        return True

    def take_over(self) -> None:
        """Uses what the files hold now. On the loop: a handshake must not see half of it."""
        _load(self.context, self._config)

    def _look(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in (self._config.key_file, self._config.ca_file) if path]


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _made(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    wanted = sorted(VERSIONS[name] for name in config.versions if name in VERSIONS)
    if not wanted:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"ssl.enabled.protocols has none of {', '.join(VERSIONS)}"
        )
    context.minimum_version, context.maximum_version = wanted[0], wanted[-1]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_mode = CLIENT_AUTH[config.client_auth]
    if config.client_auth != "none" and not config.ca_file:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"ssl.client.auth={config.client_auth} needs ssl.truststore.location: the certificates "
            "of those who vouch for clients, in PEM",
        )
    _load(context, config)
    return context


def _load(context: ssl.SSLContext, config: TlsConfig) -> None:
    path = config.key_file
    try:
        # A function instead of text: without it OpenSSL would ask at the terminal.
        context.load_cert_chain(path, password=lambda: config.key_password or "")
        if config.ca_file:
            path = config.ca_file
            context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"cannot use {path} for TLS: {why}; it has to hold a private key and its certificates "
            "(or, for the truststore, certificates) in PEM",
        ) from error


def distinguished_name(certificate: dict[str, Any]) -> str:
    """The subject of a certificate as RFC 2253 writes it: the most special part first."""
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
