"""Decisions of the controller about an image: pure, at the cost of what has changed.

Owns: the choice of partitions to check, and the updates for them. A stable partition, which nearly
every one is, costs a comparison when its topic changes and nothing otherwise. When a broker is
added or removed, or loses its link to another, or a config changes, all partitions are checked.
Invariant: an update is decided again until an image shows it done: a changed record is checked
again, and `forget` and `is_unfinished` cause a check of everything.
Elsewhere: the rules (`leader_elections`, `reassignment`), applying updates (`partition_updates`).
"""

import functools
from collections.abc import Iterator, Mapping

from penstock.base.ids import TopicId
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller import leader_elections, reassignment
from penstock.cluster.controller.leader_elections import (
    NO_BROKEN_LINKS,
    BrokenLinks,
    Brokers,
    Rules,
)
from penstock.cluster.controller.partition_updates import PartitionUpdate, UpdateFunction
from penstock.cluster.metadata.image import Image, TopicImage
from penstock.cluster.metadata.store_keys import PartitionRecord

BALANCED_MAX = 1_000
"""Leaders moved back at once: each move is a short pause for its partition."""

DECISIONS_MAX = 1_000
"""Cached decisions while one image is checked."""


class ControllerDecisions:
    """Remembers what was checked, so that a new image costs only what it changed."""

    def __init__(self, configs: BrokerConfigs) -> None:
        self.is_unfinished = False
        """True after an update that failed: everything is checked again soon."""
        self._configs = configs
        self._topics: Mapping[str, TopicImage] = {}
        self._brokers: Brokers = {}
        self._broken_links: BrokenLinks = NO_BROKEN_LINKS
        self._generation = -1
        self._deleted: object = None
        self._rules: dict[str, tuple[Mapping[str, str], Rules]] = {}

    def forget(self) -> None:
        self._generation = -1
        self._deleted = None

    def updates(
        self, image: Image, broken_links: BrokenLinks = NO_BROKEN_LINKS
    ) -> list[PartitionUpdate]:
        """Updates for everything that changed since the last check."""
        is_all = self.is_unfinished or self._generation != self._configs.generation
        if is_all:
            self._rules.clear()
        is_all = is_all or self._brokers is not image.brokers or self._broken_links != broken_links
        updates: list[PartitionUpdate] = []
        deciders: dict[Rules, UpdateFunction] = {}
        for name, topic in image.topics.items():
            old = None if is_all else self._topics.get(name)
            if old is not topic:
                updates += self._in_topic(topic, old, image.brokers, broken_links, deciders)
        # Partitions without a live leader first: clients wait for them.
        updates.sort(
            key=lambda update: update.topic.partitions[update.index].leader in image.brokers
        )
        self.is_unfinished = False
        self._generation = self._configs.generation
        self._topics, self._brokers, self._broken_links = image.topics, image.brokers, broken_links
        if len(self._rules) > 2 * len(image.topics):
            self._rules.clear()  # Mostly of deleted topics.
        return updates

    def _in_topic(
        self,
        topic: TopicImage,
        old: TopicImage | None,
        brokers: Brokers,
        broken_links: BrokenLinks,
        deciders: dict[Rules, UpdateFunction],
    ) -> Iterator[PartitionUpdate]:
        known = old.partitions if old is not None and old.configs is topic.configs else ()
        for index, record in enumerate(topic.partitions):
            if index < len(known) and known[index] is record:
                continue
            if not is_stable(record, brokers, broken_links):
                rules = self._rules_of(topic)
                decide = deciders.get(rules)
                if decide is None:
                    decide = deciders[rules] = cached_decision(brokers, rules, broken_links)
                if decide(record) is not None:
                    yield PartitionUpdate(topic, index, decide)

    def _rules_of(self, topic: TopicImage) -> Rules:
        known = self._rules.get(topic.name)
        if known is None or known[0] is not topic.configs:
            known = self._rules[topic.name] = (
                topic.configs,
                leader_elections.rules_of(topic, self._configs),
            )
        return known[1]

    def finished_deletions(self, image: Image) -> list[TopicId]:
        if self._deleted is image.deleted:
            return []
        self._deleted = image.deleted
        return [
            topic_id
            for topic_id, record in image.deleted.items()
            if all(node in record.confirmed for node in record.replicas)
        ]


def is_stable(
    record: PartitionRecord, brokers: Brokers, broken_links: BrokenLinks = NO_BROKEN_LINKS
) -> bool:
    """True if there is surely nothing to do: true of nearly every partition, and cheap."""
    leader = brokers.get(record.leader)
    if leader is None or leader.is_draining or record.elr or record.adding or record.removing:
        return False
    if broken_links and broken_links.get(record.leader):
        return False
    return record.leader in record.isr and all(node in brokers for node in record.isr)


def next_state(
    record: PartitionRecord,
    brokers: Brokers,
    rules: Rules,
    broken_links: BrokenLinks = NO_BROKEN_LINKS,
) -> PartitionRecord | None:
    """The controller's next record: a finished move, or the outcome of an election."""
    finished = reassignment.finish(record, brokers, rules)
    return finished or leader_elections.adapt(record, brokers, rules, broken_links)


def cached_decision(
    brokers: Brokers, rules: Rules, broken_links: BrokenLinks = NO_BROKEN_LINKS
) -> UpdateFunction:
    """`next_state` for one image, cached: when a broker dies, thousands of partitions have equal
    records, and so equal decisions."""
    decide = functools.partial(next_state, brokers=brokers, rules=rules, broken_links=broken_links)
    return functools.lru_cache(maxsize=DECISIONS_MAX)(decide)


def balance(image: Image, broken_links: BrokenLinks = NO_BROKEN_LINKS) -> list[PartitionUpdate]:
    """Updates that move leadership back to preferred replicas, unless those have broken links."""
    decide = functools.partial(leader_elections.prefer, brokers=image.brokers)
    updates = [
        PartitionUpdate(topic, index, decide)
        for topic in image.topics.values()
        for index, record in enumerate(topic.partitions)
        if record.leader != record.replicas[0]
        and not broken_links.get(record.replicas[0])
        and decide(record) is not None
    ]
    return updates[:BALANCED_MAX]
