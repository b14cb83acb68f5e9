"""Security settings of a client: `security.protocol` and related names of Kafka clients.

Accepts the names of Kafka and of librdkafka (`ssl.ca.location` and `ssl.truststore.location`), so
that existing config files work. An unknown name is refused with the most similar one.
"""

import difflib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.ports import Random
from penstock.client.connection import Authenticate
from penstock.client.sasl import OAUTHBEARER, Credentials, authenticator

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NAMES = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.token",
    "sasl.jaas.config",
    "ssl.ca.location",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.endpoint.identification.algorithm",
)
ALIASES = {"sasl.mechanisms": "sasl.mechanism"}
PREFIXES = ("sasl.", "ssl.", "security.")
_JAAS = re.compile(r'(username|password)\s*=\s*"((?:\\.|[^"\\])*)"')


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Parsed settings for connections."""

    tls: ssl.SSLContext | None = None
    authenticate: Authenticate | None = None


def is_security(name: str) -> bool:
    """True if a setting is a security setting."""
    return name.startswith(PREFIXES)


def parse_security(settings: Mapping[str, str], random: Random) -> SecuritySettings:
    """Parses settings by name. Raises ValueError or Refused with advice."""
    values: dict[str, str] = {}
    for given, value in settings.items():
        name = ALIASES.get(given, given)
        if name not in NAMES:
            close = difflib.get_close_matches(name, NAMES, n=1)
            raise ValueError(
                f"unknown setting {given!r}" + (f": did you mean {close[0]!r}?" if close else "")
            )
        values[name] = value
    protocol = values.get("security.protocol", "").upper() or _default_protocol(values)
    if protocol not in PROTOCOLS:
        raise ValueError(
            f"unknown security.protocol {protocol!r}: use one of {', '.join(PROTOCOLS)}"
        )
    tls = _tls_context(values) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return SecuritySettings(tls)
    return SecuritySettings(tls, authenticator(_credentials(values), random))


def _default_protocol(values: Mapping[str, str]) -> str:
    """Derives the protocol: SASL if credentials are given, TLS if certificates are given."""
    has_sasl = any(name.startswith("sasl.") for name in values)
    has_tls = any(name.startswith("ssl.") for name in values)
    return ("SASL_" if has_sasl else "") + ("SSL" if has_tls else "PLAINTEXT")


def _credentials(values: Mapping[str, str]) -> Credentials:
    login = dict(_JAAS.findall(values.get("sasl.jaas.config", "")))
    user = values.get("sasl.username") or login.get("username", "")
    password = values.get("sasl.password") or login.get("password", "")
    token = values.get("sasl.token", "")
    mechanism = values.get("sasl.mechanism") or (OAUTHBEARER if token else "SCRAM-SHA-256")
    if mechanism == OAUTHBEARER:
        if not token:
            raise ValueError("OAUTHBEARER needs sasl.token: set it")
    elif not user or not password:
        raise ValueError(f"{mechanism} needs sasl.username and sasl.password")
    return Credentials(mechanism, user, password, token)


def _tls_context(values: Mapping[str, str]) -> ssl.SSLContext:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if values.get(name, "PEM").upper() != "PEM":
            raise ValueError(f"{name} must be PEM: convert the file with keytool or openssl")
    ca_file = values.get("ssl.ca.location") or values.get("ssl.truststore.location")
    key_file = values.get("ssl.key.location") or values.get("ssl.keystore.location")
    certificate = values.get("ssl.certificate.location") or key_file
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if values.get("ssl.endpoint.identification.algorithm", "https") in ("", "none"):
            context.check_hostname = False
        if certificate:
            password = values.get("ssl.key.password", "")
            context.load_cert_chain(certificate, key_file, password=lambda: password)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"TLS cannot be set up with {ca_file or certificate}: {error}") from error
    return context


def read_properties(text: str) -> dict[str, str]:
    """Parses lines of `name=value`, as in Kafka's --command-config; # starts a comment."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(("#", "!")):
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise ValueError(f"line {number} is not name=value: {line[:60]!r}")
        found[name.strip()] = value.strip()
    return found
