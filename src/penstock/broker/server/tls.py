"""TLS of a listener: its context from files in PEM, certificates that change while it serves, and
the name that a client's certificate gives it.

The key and its certificates are one file, as Kafka has it for PEM (`ssl.keystore.location`), those
who are believed about clients another (`ssl.truststore.location`). New files make a context of
their own, which takes the place of the old one as a whole: who is no longer in the truststore is no
longer believed, and what does not load leaves the old one in force. Connections that are open keep
what they have.
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
    """The context of those files that are there now."""

    def __init__(
        self, config: TlsConfig, make: Callable[[TlsConfig], ssl.SSLContext] | None = None
    ) -> None:
        """`make`: a listener's, if nothing is said. Raises Refused, naming the file that does not
        do."""
        self._config = config
        self._make = make or listening_context
        self._stamps = self._look()
        self.context = self._make(config)

    def current(self) -> ssl.SSLContext:
        """For the next connection."""
        return self.context

    def renewed(self) -> ssl.SSLContext | None:
        """What the files make if they have changed, for workers. Raises Refused if it won't do."""
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
    """What a listener speaks TLS with. Raises Refused."""
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
