"""Security of a node, set up before the first port opens: listeners, logins, permissions.

The cluster's secret is created only if clients can log in; then the user `admin` is created too, if
`admin.password.file` is set and there is no such user: the first user cannot be created by another
one.
"""

from dataclasses import dataclass

from penstock.base.errors import Refused
from penstock.base.ports import Store
from penstock.broker.server.tls import Certificates
from penstock.client.connection import ConnectionConfig
from penstock.cluster.access.authorizer import Authorizer
from penstock.cluster.configs.configs import BrokerConfigs, InvalidConfig
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.node.config import NodeConfig
from penstock.node.config_consistency import check_together
from penstock.node.listeners import ListenerEndpoint, endpoints, require_addresses
from penstock.node.ports import Ports
from penstock.node.security.logins import ADMIN, Logins, cluster_secret, make_admin
from penstock.node.security.peer_auth import Authenticate, introduction, node_certificates


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
