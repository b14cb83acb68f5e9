"""Authentication of this node to other nodes: the client's side of the inter-node listener."""

import ssl
from collections.abc import Awaitable, Callable

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random
from penstock.broker.server.tls import Certificates, TlsConfig
from penstock.client.connection import Connection, ConnectionConfig
from penstock.client.sasl import authenticator
from penstock.cluster.configs.configs import BrokerConfigs, InvalidConfig
from penstock.node.listeners import ListenerEndpoint, tls_config
from penstock.node.security.logins import node_credentials

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
