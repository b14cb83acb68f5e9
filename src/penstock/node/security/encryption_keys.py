"""Key-encryption keys of a node, read and verified before anything on its disk is changed."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.cluster.configs.effective_configs import BrokerConfigs, InvalidConfig, require_key
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.storage.log_encryption import LogEncryption, check
from penstock.node.join import CannotJoin
from penstock.node.ports import Ports
from penstock.runtime.secrets import NoSecret
from penstock.security.keyring import Kek, Keyring, KeyTrouble, parse_keks

SOURCE = "encryption.kek.source"


@dataclass(frozen=True, slots=True)
class Unlocked:
    """Keys of a node with encryption, and how to reload them."""

    keyring: Keyring | None = None
    read_keks: Callable[[], tuple[Kek, ...]] | None = None

    def encryption(self, partitions: Partitions, ports: Ports) -> LogEncryption | None:
        if self.keyring is None or self.read_keks is None:
            return None
        return LogEncryption(partitions, ports.disk, ports.workers, self.keyring, self.read_keks)


async def unlock(ports: Ports, configs: BrokerConfigs, data_dir: str) -> Unlocked:
    """Reads the keys and tries them on every encrypted log. Raises CannotJoin before any change."""
    try:
        if configs.flag("encryption.enable"):
            require_key({"encryption.enable": "true"}, configs)
        return await ports.workers.run(_unlock, ports, configs.text(SOURCE), data_dir)
    except (InvalidConfig, KeyTrouble) as trouble:
        raise CannotJoin(str(trouble)) from trouble


def _unlock(ports: Ports, source: str | None, data_dir: str) -> Unlocked:
    logs = f"{data_dir}/logs"
    if source is None:
        check(ports.disk, logs, None)
        return Unlocked()

    def read_keks() -> tuple[Kek, ...]:
        try:
            return parse_keks(ports.read_secret(source))
        except (NoSecret, KeyTrouble) as trouble:
            raise KeyTrouble(f"{SOURCE}: {trouble}") from trouble

    keyring = Keyring(read_keks(), ports.random)
    check(ports.disk, logs, keyring)
    return Unlocked(keyring, read_keks)
