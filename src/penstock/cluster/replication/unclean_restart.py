"""Unclean restart: leave the ISR and the ELR before registering again.

Without a clean-shutdown marker it is unknown which of the last records reached the disk. So the
node leaves the ISR and the ELR of its partitions before it may lead again
(`leader_elections.after_unclean_restart` decides of which). It does so itself while it is not
registered. Then no leader can add it back meanwhile, because an ISR grows only under the guard of a
registration. Once it has registered, everything that the image says of this node was written after
its restart.

Elsewhere: removing the previous registration first, and registering afterwards (`membership`);
elections (`controller`).
"""

import functools
import logging
from collections.abc import Callable, Collection

from penstock.base.errors import Refused
from penstock.base.ports import Store
from penstock.base.retry import Retry
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller import leader_elections, partition_updates
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image, load
from penstock.cluster.metadata.store_keys import PartitionRecord

log = logging.getLogger("penstock.returns")

RETRY_SECONDS = (0.2, 1.0)


async def withdraw_unclean(
    store: Store,
    configs: BrokerConfigs,
    node_id: int,
    *,
    is_empty: bool = False,
    is_old: bool = False,
) -> int:
    """Leaves the ISRs that count on records this node may have lost; returns how many.

    `is_empty`: the data directory is new. `is_old`: it was restored from an older copy. Then it may
    lack any record, but of partitions with a single replica it holds all that is left. Retries
    while the store does not answer.
    """

    def changes_for(image: Image) -> list[partition_updates.PartitionUpdate]:
        return _changes(image, configs, node_id, is_empty, is_old)

    changed = await _apply_all(store, changes_for)
    if changed:
        log.info("unclean restart: left the in-sync replicas of %d partitions", changed)
    return changed


async def withdraw_lost(
    store: Store, configs: BrokerConfigs, node_id: int, lost: Collection[tuple[str, int]]
) -> int:
    """Leaves the ISRs of replicas that have lost records; returns how many."""

    def changes_for(image: Image) -> list[partition_updates.PartitionUpdate]:
        return _losses(image, configs, node_id, lost, may_be_last=True)

    changed = await _apply_all(store, changes_for)
    if changed:
        log.warning("%d replicas here are lost: they cannot lead until copied anew", changed)
    return changed


async def withdraw_doubtful(
    store: Store, configs: BrokerConfigs, node_id: int, doubtful: Collection[tuple[str, int]]
) -> int:
    """Leaves the ISRs of replicas that may have lost records, where another member is left that
    may lead instead; returns how many."""

    def changes_for(image: Image) -> list[partition_updates.PartitionUpdate]:
        return _losses(image, configs, node_id, doubtful, may_be_last=False)

    changed = await _apply_all(store, changes_for)
    if changed:
        log.warning("%d replicas here have a doubtful end: they are copied from others", changed)
    return changed


def _losses(
    image: Image,
    configs: BrokerConfigs,
    node_id: int,
    names: Collection[tuple[str, int]],
    *,
    may_be_last: bool,
) -> list[partition_updates.PartitionUpdate]:
    changes = []
    for name, index in names:
        topic = image.topics.get(name)
        if topic is not None and index < len(topic.partitions):
            decide = functools.partial(
                _without_lost,
                node_id=node_id,
                brokers=image.brokers,
                rules=leader_elections.rules_of(topic, configs),
                may_be_last=may_be_last,
            )
            changes.append(partition_updates.PartitionUpdate(topic, index, decide))
    return changes


def _after_unclean_restart(
    record: PartitionRecord,
    node_id: int,
    brokers: leader_elections.Brokers,
    rules: leader_elections.Rules,
    is_empty: bool,
    is_old: bool,
) -> PartitionRecord | None:
    is_empty = is_empty or (is_old and len(record.replicas) > 1)
    return leader_elections.after_unclean_restart(
        record, node_id, brokers, rules, is_empty=is_empty
    )


def _without_lost(
    record: PartitionRecord,
    node_id: int,
    brokers: leader_elections.Brokers,
    rules: leader_elections.Rules,
    may_be_last: bool,
) -> PartitionRecord | None:
    if not leader_elections.must_leave(record, node_id):
        return None
    others = [node for node in record.isr + record.elr if node != node_id]
    if not others and not may_be_last:
        return None
    return leader_elections.without(record, node_id, brokers, rules)


async def _apply_all(
    store: Store, changes_for: Callable[[Image], list[partition_updates.PartitionUpdate]]
) -> int:
    """Applies the changes, however long the store takes; returns how many records changed."""
    changed = 0
    retry = Retry(store.random, *RETRY_SECONDS)
    while True:
        try:
            image = load(*await store.range(store_keys.ALL))
            outcomes = await partition_updates.apply(store, changes_for(image))
        except partition_updates.STORE_ERRORS as error:
            log.warning("the metadata store does not answer: %r", error)
            await retry.pause()
            continue
        changed += sum(isinstance(outcome, partition_updates.Changed) for outcome in outcomes)
        if not any(isinstance(outcome, Refused) for outcome in outcomes):
            return changed
        await retry.pause()


def _changes(
    image: Image, configs: BrokerConfigs, node_id: int, is_empty: bool, is_old: bool
) -> list[partition_updates.PartitionUpdate]:
    changes = []
    for topic in image.topics.values():
        decide = functools.partial(
            _after_unclean_restart,
            node_id=node_id,
            brokers=image.brokers,
            rules=leader_elections.rules_of(topic, configs),
            is_empty=is_empty,
            is_old=is_old,
        )
        changes += [
            partition_updates.PartitionUpdate(topic, index, decide)
            for index, record in enumerate(topic.partitions)
            if node_id in record.replicas
        ]
    return changes
