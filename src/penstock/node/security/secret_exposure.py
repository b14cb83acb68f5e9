"""Checks at start for secrets that other users of the machine or the network could read.

A private key, a password or a config file with passwords that every user of the machine may read is
refused; one that its group may read, and secrets on the command line, cause warnings. So do
endpoints beyond loopback that accept passwords without TLS: a node cannot detect other protection,
such as a proxy or a private network.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from penstock.cluster.configs.config_types import ConfigType
from penstock.cluster.configs.effective_configs import BrokerConfigs, InvalidConfig, Scope, find
from penstock.gateway.http.csrf import is_loopback
from penstock.node.config import ALIASES, NodeConfig
from penstock.node.listeners import ListenerEndpoint, endpoints
from penstock.runtime.file_permissions import Readers

SECRET_FILES = ("ssl.keystore.location", "admin.password.file")
KEK_SOURCE = "encryption.kek.source"
FILE = "file:"
IN_CLEAR = ("PLAIN", "OAUTHBEARER")
"""Mechanisms that send a secret over the connection."""
ReadersOf = Callable[[str], Readers]


def exposures(config: NodeConfig, readers_of: ReadersOf) -> list[str]:
    """Warnings about exposed secrets. Raises InvalidConfig for files that every user may read."""
    configs = BrokerConfigs(config.overrides)
    found = endpoints(configs, config.host, config.kafka_port, config.advertised_host)
    warnings: list[str] = []
    for name, path in _secret_files(config, configs):
        warnings += _check_file(name, path, readers_of)
    return warnings + _passwords_in_clear(found, configs, config.host)


def check_config_file(path: str, names: Iterable[str], readers_of: ReadersOf) -> list[str]:
    """Warnings about a config file that sets `names`. Raises InvalidConfig like `exposures`."""
    secret = next((name for name in names if is_secret(name)), None)
    return [] if secret is None else _check_file(f"it holds {secret}", path, readers_of)


def command_line_secrets(sets: Mapping[str, str]) -> list[str]:
    """Warnings about secrets on the command line."""
    return [
        f"{name} is on the command line, where every user of this machine can read it (ps): "
        "write it into a file for --config, with chmod 600"
        for name, value in sets.items()
        if value and is_secret(name)
    ]


def is_secret(name: str) -> bool:
    if name in ALIASES:
        return False
    return name == "etcd.password" or find(Scope.BROKER, name).type is ConfigType.PASSWORD


def _secret_files(config: NodeConfig, configs: BrokerConfigs) -> list[tuple[str, str]]:
    found = [(name, path) for name in SECRET_FILES if (path := configs.text(name))]
    source = configs.text(KEK_SOURCE) or ""
    if source.startswith(FILE):
        found.append((KEK_SOURCE, source.removeprefix(FILE)))
    if config.etcd is not None and config.etcd.key_file:
        found.append(("etcd.key-file", config.etcd.key_file))
    return found


def _check_file(name: str, path: str, readers_of: ReadersOf) -> list[str]:
    try:
        readers = readers_of(path)
    except OSError:
        return []  # The code that needs the file reports the error.
    if readers is Readers.EVERY_USER:
        raise InvalidConfig(
            f"{path} ({name}): every user of this machine can read or change it; chmod 600 {path}"
        )
    if readers is Readers.GROUP:
        return [f"{path} ({name}): its group can read or change it; chmod 600 {path}, unless meant"]
    return []


def _passwords_in_clear(
    found: list[ListenerEndpoint], configs: BrokerConfigs, http_host: str
) -> list[str]:
    taken: Collection[str] = configs.items("sasl.enabled.mechanisms")
    aloud = [mechanism for mechanism in IN_CLEAR if mechanism in taken]
    warnings = [
        f"listener {one.name} on {one.host or 'every address'} accepts {' and '.join(aloud)} "
        "without TLS: the network can read passwords and tokens. Make it SASL_SSL, or leave only "
        "SCRAM in sasl.enabled.mechanisms"
        for one in found
        if aloud and one.protocol.has_login and not one.protocol.has_tls
        if not is_loopback(one.host)
    ]
    has_login = any(one.protocol.has_login for one in found)
    is_guarded = bool(configs.text("authorizer.class.name"))
    has_tls = configs.text("http.security.protocol") == "SSL"
    if (is_guarded or has_login) and not has_tls and not is_loopback(http_host):
        warnings.append(
            f"HTTP on {http_host or 'every address'} accepts passwords without TLS: the network "
            "can read them. Set http.security.protocol=SSL, or listen on 127.0.0.1 behind a "
            "proxy that speaks TLS"
        )
    return warnings
