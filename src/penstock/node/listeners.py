"""Configuration of the listeners for Kafka clients, and of their authentication.

`listeners` names them as Kafka does (`SASL_SSL://0.0.0.0:9093,PLAINTEXT://127.0.0.1:9092`); if
unset, there is one, PLAINTEXT, at --host and --kafka-port. `listener.security.protocol.map` gives
the protocol of custom names, `advertised.listeners` the addresses for clients, and
`inter.broker.listener.name` the listener for other nodes.

Only loopback listens without authentication, unless `--insecure` allows it.
"""

import errno
from dataclasses import dataclass
from enum import StrEnum

from penstock.broker.server.tls import TlsConfig
from penstock.cluster.configs.config_types import InvalidConfig
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.store_keys import EVERYWHERE
from penstock.gateway.http.csrf import is_loopback

LISTENERS_MAX = 16
UNREAD = {
    "ssl.keystore.key": "ssl.keystore.location",
    "ssl.keystore.certificate.chain": "ssl.keystore.location",
    "ssl.truststore.certificates": "ssl.truststore.location",
}
"""Kafka configs that contain PEM text themselves, and the config that names a file instead."""


class Protocol(StrEnum):
    """Kafka's names of a listener's security protocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def has_login(self) -> bool:
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class ListenerEndpoint:
    """One listener: its address, protocol and advertised address."""

    name: str
    protocol: Protocol
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    """0: the port that was opened."""


def endpoints(
    configs: BrokerConfigs, host: str, port: int, advertised_host: str | None
) -> list[ListenerEndpoint]:
    """Returns every listener, the inter-node one first. Raises InvalidConfig."""
    protocols = _protocols(configs)
    advertised = {
        name: (where, number)
        for name, where, number in map(_address, configs.items("advertised.listeners"))
    }
    found: dict[str, ListenerEndpoint] = {}
    is_told = "listeners" in configs.static
    for text in configs.items("listeners") if is_told else (plain_listener(host, port),):
        name, where, number = _address(text)
        protocol = protocols.get(name)
        if protocol is None:
            raise InvalidConfig(
                f"listener {name} is not in listener.security.protocol.map; add its protocol, "
                f"as in {name}:SASL_SSL"
            )
        if name in found:
            raise InvalidConfig(f"two listeners are named {name}; choose different names")
        told, told_port = advertised.pop(name, (advertised_host or where, 0))
        found[name] = ListenerEndpoint(name, protocol, where, number, told, told_port)
    if advertised:
        raise InvalidConfig(
            f"advertised.listeners has {next(iter(advertised))}, which is not in listeners; add it "
            "there, or remove it"
        )
    if not 1 <= len(found) <= LISTENERS_MAX:
        raise InvalidConfig(
            f"{len(found)} listeners are configured; configure 1 to {LISTENERS_MAX}"
        )
    inner = configs.text("inter.broker.listener.name") or next(iter(found))
    if inner not in found:
        raise InvalidConfig(
            f"inter.broker.listener.name={inner} is not in listeners; choose one of "
            f"{', '.join(found)}"
        )
    return [found.pop(inner), *found.values()]


def plain_listener(host: str, port: int) -> str:
    """Returns the only listener of a node whose `listeners` is unset."""
    return f"PLAINTEXT://{show_address(host, port)}"


def _protocols(configs: BrokerConfigs) -> dict[str, Protocol]:
    protocols: dict[str, Protocol] = {}
    for row in (configs.text("listener.security.protocol.map") or "").split(","):
        name, _, protocol = (part.strip() for part in row.partition(":"))
        try:
            protocols[name] = Protocol(protocol)
        except ValueError:
            raise InvalidConfig(
                f"listener.security.protocol.map: invalid protocol {protocol!r}; use one of "
                f"{', '.join(Protocol)}"
            ) from None
    return protocols


def _address(text: str) -> tuple[str, str, int]:
    name, separator, rest = text.strip().partition("://")
    where, _, number = rest.rpartition(":")
    if not separator or not name or not number.isdecimal() or int(number) > 65535:
        raise InvalidConfig(f"{text!r} is not a listener; write it as SASL_SSL://0.0.0.0:9093")
    return name, where.strip("[]"), int(number)


def refuse_open_listeners(
    found: list[ListenerEndpoint], configs: BrokerConfigs, http_host: str
) -> None:
    """Raises InvalidConfig if a listener beyond loopback has no authentication."""
    has_certificates = configs.text("ssl.client.auth") == "required"
    for one in found:
        asks = one.protocol.has_login or (one.protocol is Protocol.SSL and has_certificates)
        if not asks and not is_loopback(one.host):
            raise InvalidConfig(
                f"listener {one.name} on {one.host or 'every address'} has no authentication. "
                "Make it SASL_SSL (or SSL with ssl.client.auth=required), listen on 127.0.0.1, "
                "or pass --insecure if every client in that network may do everything"
            )
    is_guarded = bool(configs.text("authorizer.class.name"))
    if not is_loopback(http_host) and not is_guarded:
        raise InvalidConfig(
            f"HTTP on {http_host or 'every address'} has no authentication. Listen on 127.0.0.1, "
            "switch on ACLs (authorizer.class.name), or pass --insecure if every client in that "
            "network may do everything"
        )
    if not is_loopback(http_host) and configs.flag("allow.everyone.if.no.acl.found"):
        raise InvalidConfig(
            f"HTTP on {http_host or 'every address'} gives anonymous clients all resources "
            "without an ACL. Leave allow.everyone.if.no.acl.found at false, listen on 127.0.0.1, "
            "or pass --insecure to allow that"
        )


def require_addresses(found: list[ListenerEndpoint]) -> None:
    """Raises InvalidConfig if a listener of a cluster has no address for clients to connect to."""
    for one in found:
        if one.advertised_host in EVERYWHERE:
            where = show_address(one.host, one.port)
            raise InvalidConfig(
                f"listener {one.name} listens on {where}, to which clients cannot connect; "
                f"set advertised.listeners={one.name}://HOST:{one.advertised_port or one.port}"
            )


def tls_config(configs: BrokerConfigs) -> TlsConfig:
    """Returns the TLS configuration of the listeners. Raises InvalidConfig."""
    for name, instead in UNREAD.items():
        if configs.text(name):
            raise InvalidConfig(
                f"{name} is not read; put key and certificates into one file in "
                f"PEM and name it in {instead}"
            )
    key_file = configs.text("ssl.keystore.location")
    if not key_file:
        raise InvalidConfig(
            "a listener with TLS needs ssl.keystore.location: a file with the private key and its "
            "certificates, in PEM"
        )
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        if (configs.text(name) or "PEM").upper() != "PEM":
            raise InvalidConfig(f"{name} has to be PEM; `keytool` and openssl convert JKS to it")
    return TlsConfig(
        key_file,
        configs.text("ssl.key.password") or configs.text("ssl.keystore.password"),
        configs.text("ssl.truststore.location"),
        configs.text("ssl.client.auth") or "none",
        configs.items("ssl.enabled.protocols"),
    )


def show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def cannot_listen(error: OSError, host: str, port: int, flag: str) -> str:
    """Returns one line: what failed, why, and how to fix it."""
    where = show_address(host, port)
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where} is in use by another process; stop that one, or choose another port with "
            f"{flag} (0 picks a free one)"
        )
    if error.errno == errno.EACCES:
        return f"no permission to listen on {where}; choose a port above 1023 with {flag}"
    return f"cannot listen on {where}: {error.strerror or error}; see --host and {flag}"
