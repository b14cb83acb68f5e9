"""Security of a node, set up before the first port opens: listeners, logins, permissions.

The cluster's secret is created only if clients can log in; then the user `admin` is created too, if
`admin.password.file` is set and there is no such user: the first user cannot be created by another
one.

Authentication of this node to other nodes: the client's side of the inter-node listener.
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, Store
from penstock.broker.server.tls import Certificates, TlsConfig
from penstock.client.connection import Connection, ConnectionConfig
from penstock.client.sasl import authenticator
from penstock.cluster.access.authorizer import Authorizer
from penstock.cluster.configs.effective_configs import BrokerConfigs, InvalidConfig
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.node.config import NodeConfig
from penstock.node.config_consistency import check_together
from penstock.node.listeners import ListenerEndpoint, endpoints, require_addresses, tls_config
from penstock.node.ports import Ports
from penstock.node.security.logins import (
    ADMIN,
    Logins,
    cluster_secret,
    make_admin,
    node_credentials,
)

Authenticate = Callable[[Connection], Awaitable[None]]


def introduction(
    configs: BrokerConfigs,
    endpoint: ListenerEndpoint,
    secret: bytes | None,
    random: Random,
    certificates: Certificates | None,
) -> tuple[ConnectionConfig, Authenticate | None]:
    """Returns connection settings and login for other nodes, for this inter-node listener."""
    authenticate = None
    if secret is not None:
        authenticate = authenticator(node_credentials(secret), random)
        if not endpoint.protocol.has_login:
            authenticate = _where_that_is_known(authenticate)
    tls = certificates.current if certificates is not None else None
    return ConnectionConfig(tls=tls), authenticate


def _where_that_is_known(authenticate: Authenticate) -> Authenticate:
    """Authenticates on a listener without authentication, if the secret is known; a node without a
    secret needs no permissions either."""

    async def attempt(connection: Connection) -> None:
        try:
            await authenticate(connection)
        except Refused as refused:
            if refused.code is not ErrorCode.ILLEGAL_SASL_STATE:
                raise

    return attempt


def node_certificates(configs: BrokerConfigs, endpoint: ListenerEndpoint) -> Certificates | None:
    """Returns this node's certificate and the CAs it trusts; None: no TLS between nodes."""
    if not endpoint.protocol.has_tls:
        return None
    checks_names = bool(configs.text("ssl.endpoint.identification.algorithm"))
    try:
        return Certificates(tls_config(configs), lambda config: _context(config, checks_names))
    except Refused as refused:
        raise InvalidConfig(refused.message or "TLS between nodes cannot be set up") from refused


def _context(config: TlsConfig, checks_names: bool) -> ssl.SSLContext:
    try:
        # Its own certificate's issuer is trusted too: nodes of one cluster often share it.
        context = ssl.create_default_context(cafile=config.ca_file or config.key_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = checks_names
        context.load_cert_chain(config.key_file, password=lambda: config.key_password or "")
    except (OSError, ssl.SSLError) as error:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"TLS between nodes cannot be set up: {error}"
        ) from error
    return context


@dataclass(frozen=True, slots=True)
class NodeSecurity:
    """Security objects that all endpoints of a node share."""

    endpoints: list[ListenerEndpoint]
    logins: Logins | None
    """None: no endpoint authenticates clients."""
    introduction: tuple[ConnectionConfig, Authenticate | None]
    """Connection settings and login of this node for other nodes."""
    certificates: Certificates | None
    """Certificates for it, if it uses TLS."""
    authorizer: Authorizer


async def secure(
    config: NodeConfig,
    configs: BrokerConfigs,
    store: Store,
    watcher: MetadataWatcher,
    ports: Ports,
) -> NodeSecurity:
    """Raises InvalidConfig, whose message names the unusable config."""
    check_together(configs)
    found = endpoints(configs, config.host, config.kafka_port, config.advertised_host)
    if config.etcd is not None:
        require_addresses(found)
    logins: Logins | None = None
    secret: bytes | None = None
    is_guarded = bool(configs.text("authorizer.class.name"))
    if is_guarded or any(endpoint.protocol.has_login for endpoint in found):
        secret = await cluster_secret(store, ports.random)
        logins = Logins(configs, watcher, ports.workers, ports.clock, ports.random, secret)
        await _ensure_admin(configs, store, watcher, ports)
    certificates = node_certificates(configs, found[0])
    return NodeSecurity(
        found,
        logins,
        introduction(configs, found[0], secret, ports.random, certificates),
        certificates,
        Authorizer(configs, watcher.image),
    )


async def _ensure_admin(
    configs: BrokerConfigs, store: Store, watcher: MetadataWatcher, ports: Ports
) -> None:
    path = configs.text("admin.password.file")
    admin = watcher.image.users.get(ADMIN)
    if path is None or (admin is not None and admin.scram):
        return
    try:
        await make_admin(store, watcher.image, ports.random, path)
    except (OSError, Refused) as error:
        raise InvalidConfig(f"admin.password.file: {error}") from error
