"""What the controller has to do about an image: pure, and at the cost of what changed.

Owns: which partitions are looked at, and what is wished for them. A settled partition, which is
nearly every one, costs a comparison when its topic changes and nothing otherwise; when a broker
comes or goes, or is cut off from another, or a config changes, all are looked at.
Invariant: what was looked at and found wanting is wished for until an image shows it done: a
record that changes is looked at again, and `forget` and `is_unfinished` make everything new.
Leaves to others: the rules (`elections`, `reassignment`), carrying wishes out (`states`).
"""

import functools
from collections.abc import Iterator, Mapping

from penstock.base.ids import TopicId
from penstock.cluster.configs.configs import BrokerConfigs
from penstock.cluster.controller import elections, reassignment
from penstock.cluster.controller.elections import NO_CUTS, Brokers, Cuts, Rules
from penstock.cluster.controller.partition_updates import PartitionWish, UpdateFunction
from penstock.cluster.metadata.image import Image, TopicImage
from penstock.cluster.metadata.store_keys import PartitionRecord

BALANCED_MAX = 1_000
"""Leaders handed back at once: each is a short pause for its partition."""

DECISIONS_MAX = 1_000
"""Decisions remembered while one image is looked at."""


class ControllerDecisions:
    """What has been looked at already, so that each change of the image costs what it changed."""

    def __init__(self, configs: BrokerConfigs) -> None:
        self.is_unfinished = False
        """Some wish did not come true: look at everything again soon."""
        self._configs = configs
        self._topics: Mapping[str, TopicImage] = {}
        self._brokers: Brokers = {}
        self._cuts: Cuts = NO_CUTS
        self._generation = -1
        self._deleted: object = None
        self._rules: dict[str, tuple[Mapping[str, str], Rules]] = {}

    def forget(self) -> None:
        self._generation = -1
        self._deleted = None

    def wishes(self, image: Image, cuts: Cuts = NO_CUTS) -> list[PartitionWish]:
        """What is to be done about everything that changed since the last look."""
        is_all = self.is_unfinished or self._generation != self._configs.generation
        if is_all:
            self._rules.clear()
        is_all = is_all or self._brokers is not image.brokers or self._cuts != cuts
        wishes: list[PartitionWish] = []
        deciders: dict[Rules, UpdateFunction] = {}
        for name, topic in image.topics.items():
            old = None if is_all else self._topics.get(name)
            if old is not topic:
                wishes += self._in_topic(topic, old, image.brokers, cuts, deciders)
        # Those without a leader first: somebody waits for them.
        wishes.sort(key=lambda wish: wish.topic.partitions[wish.index].leader in image.brokers)
        self.is_unfinished = False
        self._generation = self._configs.generation
        self._topics, self._brokers, self._cuts = image.topics, image.brokers, cuts
        if len(self._rules) > 2 * len(image.topics):
            self._rules.clear()  # Mostly of topics that are gone.
        return wishes

    def _in_topic(
        self,
        topic: TopicImage,
        old: TopicImage | None,
        brokers: Brokers,
        cuts: Cuts,
        deciders: dict[Rules, UpdateFunction],
    ) -> Iterator[PartitionWish]:
        known = old.partitions if old is not None and old.configs is topic.configs else ()
        for index, record in enumerate(topic.partitions):
            if index < len(known) and known[index] is record:
                continue
            if not is_settled(record, brokers, cuts):
                rules = self._rules_of(topic)
                decide = deciders.get(rules)
                if decide is None:
                    decide = deciders[rules] = remembering(brokers, rules, cuts)
                if decide(record) is not None:
                    yield PartitionWish(topic, index, decide)

    def _rules_of(self, topic: TopicImage) -> Rules:
        known = self._rules.get(topic.name)
        if known is None or known[0] is not topic.configs:
            known = self._rules[topic.name] = (
                topic.configs,
                elections.rules_of(topic, self._configs),
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


def is_settled(record: PartitionRecord, brokers: Brokers, cuts: Cuts = NO_CUTS) -> bool:
    """Whether there is surely nothing to do: true of nearly every partition, and quick."""
    leader = brokers.get(record.leader)
    if leader is None or leader.is_draining or record.elr or record.adding or record.removing:
        return False
    if cuts and cuts.get(record.leader):
        return False
    return record.leader in record.isr and all(node in brokers for node in record.isr)


def next_state(
    record: PartitionRecord, brokers: Brokers, rules: Rules, cuts: Cuts = NO_CUTS
) -> PartitionRecord | None:
    """What the controller makes of a record: a finished move, or what follows from who is up."""
    finished = reassignment.finish(record, brokers, rules)
    return finished or elections.settle(record, brokers, rules, cuts)


def remembering(brokers: Brokers, rules: Rules, cuts: Cuts = NO_CUTS) -> UpdateFunction:
    """`next_state` for the brokers of one image. When a broker dies, thousands of partitions have
    a record in common with many others, and ask the same question."""
    decide = functools.partial(next_state, brokers=brokers, rules=rules, cuts=cuts)
    return functools.lru_cache(maxsize=DECISIONS_MAX)(decide)


def balance(image: Image, cuts: Cuts = NO_CUTS) -> list[PartitionWish]:
    """Leaders that are to go back to the preferred replica, where it is not cut off from any."""
    decide = functools.partial(elections.prefer, brokers=image.brokers)
    wishes = [
        PartitionWish(topic, index, decide)
        for topic in image.topics.values()
        for index, record in enumerate(topic.partitions)
        if record.leader != record.replicas[0]
        and not cuts.get(record.replicas[0])
        and decide(record) is not None
    ]
    return wishes[:BALANCED_MAX]
