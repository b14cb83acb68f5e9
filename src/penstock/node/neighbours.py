"""How this node introduces itself to the others: the client's side of the inter-node listener."""

import ssl
from collections.abc import Awaitable, Callable

from penstock.base.ports import Random
from penstock.client.connection import Connection, ConnectionConfig
from penstock.client.sasl import authenticator
from penstock.cluster.configs import BrokerConfigs, InvalidConfig
from penstock.node.listeners import Endpoint, tls_config
from penstock.node.logins import node_credentials

Authenticate = Callable[[Connection], Awaitable[None]]


def introduction(
    configs: BrokerConfigs, endpoint: Endpoint, secret: bytes | None, random: Random
) -> tuple[ConnectionConfig, Authenticate | None]:
    """What connections to other nodes need, given the listener that this one has for them."""
    tls = _context(configs) if endpoint.protocol.has_tls else None
    authenticate = None
    if endpoint.protocol.has_login:
        assert secret is not None
        authenticate = authenticator(node_credentials(secret), random)
    return ConnectionConfig(tls=tls), authenticate


def _context(configs: BrokerConfigs) -> ssl.SSLContext:
    config = tls_config(configs)
    try:
        # Its own certificate's issuer is believed too: nodes of one cluster often have the same.
        context = ssl.create_default_context(cafile=config.ca_file or config.key_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not configs.text("ssl.endpoint.identification.algorithm"):
            context.check_hostname = False
        context.load_cert_chain(config.key_file, password=lambda: config.key_password or "")
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(f"TLS between nodes cannot be set up: {error}") from error
    return context
