"""Lives of a node: the process that served its data directory last, locally and in the store.

Every life has a number. It is written to the data directory (`data_directory`) before the node
registers, and to the store in the transaction that registers it; the store's number is never
deleted. A directory with a lower number was restored from a copy that is older than the node's last
life: it lacks records acknowledged since, whatever its clean-shutdown marker says.

Rules for missing or inconsistent numbers:
- none in the store: an older version, or a new cluster. The directory is trusted;
- none here, but one in the store: a copy from before there were numbers. Not trusted;
- the store's is of another directory: the numbers cannot be compared. Not trusted;
- the store's is lower: a crash came between the two writes, or the store is the older one. The
  directory is trusted; logs of topics that the store does not have prove that the store is older
  (`metadata_check`).
"""

import logging

from penstock.base.ports import Store
from penstock.base.retry import Retry
from penstock.cluster.controller.partition_updates import STORE_ERRORS
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import LifeRecord

log = logging.getLogger("penstock.node")

RETRY_SECONDS = (0.2, 1.0)


async def last(store: Store, node_id: int) -> LifeRecord | None:
    """Returns the last life that registered. Retries while the store does not answer."""
    retry = Retry(store.random, *RETRY_SECONDS)
    while True:
        try:
            entry = await store.get(store_keys.life_key(node_id))
        except STORE_ERRORS as error:
            log.warning("the metadata store does not answer: %r", error)
            await retry.pause()
            continue
        return store_keys.decode(LifeRecord, entry.value) if entry is not None else None


def is_older(here: int, directory_id: str, last: LifeRecord | None) -> bool:
    """True if this node's last life did not leave this directory."""
    if last is None:
        return False
    return last.directory_id != directory_id or last.number > here


def is_unknown(here: int, directory_id: str, last: LifeRecord | None) -> bool:
    """True if this directory has served in a life that the store does not know."""
    if last is None:
        return here > 0
    return last.directory_id == directory_id and last.number < here


def next_life(here: int, directory_id: str, last: LifeRecord | None) -> LifeRecord:
    """Returns the next life, with a number above all known ones."""
    return LifeRecord(max(here, last.number if last is not None else 0) + 1, directory_id)


def report(data_dir: str, here: int, last: LifeRecord | None) -> None:
    """Logs what was detected, and its consequences, for the operator."""
    log.error(
        "%s is older than this node: it was left by life %d, and life %d has registered since. It "
        "was restored from a copy, and records acknowledged later are not in it. Replicas here "
        "lead nothing until they have caught up with others; of partitions without another "
        "replica the copy is what is left.",
        data_dir,
        here,
        last.number if last is not None else 0,
    )
