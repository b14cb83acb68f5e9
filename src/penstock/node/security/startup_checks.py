"""Security settings that cannot work, refused before a start writes any file.

The parts of a node check the same settings when they use them; this module only makes a refused
start leave the data directory as it was. Keys that a command prints are not asked for here, because
the command would run twice.
"""

from pathlib import Path

from penstock.cluster.access.authorizer import super_users
from penstock.cluster.configs.effective_configs import BrokerConfigs, InvalidConfig, require_key
from penstock.node.config import NodeConfig
from penstock.node.config_consistency import check_together
from penstock.node.data_directory import META
from penstock.node.kafka_listeners import load_certificates, mapping_rules
from penstock.node.listeners import endpoints, require_addresses
from penstock.node.security.encryption_keys import SOURCE
from penstock.node.security.security_setup import node_certificates
from penstock.runtime.secrets import NoSecret, read_secret
from penstock.security.keyring import KeyTrouble, parse_keks

COMMAND = "command:"


def refuse_unusable_security(config: NodeConfig) -> None:
    """Raises InvalidConfig, whose message names the unusable config."""
    configs = BrokerConfigs(config.overrides)
    check_together(configs)
    found = endpoints(configs, config.host, config.kafka_port, config.advertised_host)
    if config.etcd is not None:
        require_addresses(found)
    for name in super_users(configs.text("super.users") or ""):
        kind, colon, user = name.partition(":")
        if not (kind and colon and user):
            raise InvalidConfig(
                f"super.users: {name!r} is not a principal; write User:{name.strip(':')}, and "
                "separate several by semicolons"
            )
    has_tls = [endpoint for endpoint in found if endpoint.protocol.has_tls]
    if has_tls or configs.text("http.security.protocol") == "SSL":
        load_certificates(configs)
    if has_tls:
        mapping_rules(configs)
        node_certificates(configs, found[0])
    _check_keys(configs)
    _check_admin(config, configs)


def _check_keys(configs: BrokerConfigs) -> None:
    if configs.flag("encryption.enable"):
        require_key({"encryption.enable": "true"}, configs)
    source = configs.text(SOURCE)
    if source is None or source.startswith(COMMAND):
        return
    try:
        parse_keks(read_secret(source))
    except (NoSecret, KeyTrouble) as trouble:
        raise InvalidConfig(f"{SOURCE}: {trouble}") from trouble


def _check_admin(config: NodeConfig, configs: BrokerConfigs) -> None:
    """A first start reads the admin's password; later ones may do without the file."""
    path = configs.text("admin.password.file")
    is_first = config.etcd is None and not (Path(config.data_dir) / META).exists()
    if path is not None and is_first:
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise InvalidConfig(f"admin.password.file: {error}") from error
