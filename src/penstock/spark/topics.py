"""Partitions of a read, from the current metadata of the cluster."""

import re
from collections.abc import Callable, Collection, Iterable

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NO_TOPIC_ID, show_topic_id
from penstock.client.cluster import Cluster
from penstock.client.metadata import TopicPartition
from penstock.spark.option_values import OptionError
from penstock.spark.settings import ReadSettings


async def partitions_to_read(
    cluster: Cluster, settings: ReadSettings, *, may_lack: Collection[str] = ()
) -> list[TopicPartition]:
    """Partitions to read, sorted.

    Named topics must exist except those in `may_lack`; a pattern may match no topic yet.
    """
    if settings.pattern is not None:
        matches = _matcher(settings.pattern)
        await cluster.refresh(None)
        names = sorted(
            name
            for name, info in cluster.metadata.topics.items()
            if matches(name) and not info.is_internal
        )
    else:
        names = list(settings.topics)
        await cluster.refresh(names)
        names = [name for name in names if name not in may_lack or not is_missing(cluster, name)]
    known = {name: await cluster.topic(name) for name in names}
    assigned = [where for where in settings.assigned if where.topic in known]
    for where in assigned:
        if where.partition not in known[where.topic].partitions:
            count = len(known[where.topic].partitions)
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"option 'assign': unknown partition {where.partition}: topic {where.topic!r} has "
                f"{count} partitions, 0-{count - 1}",
            )
    if settings.assigned:
        return sorted(assigned)
    return [TopicPartition(name, index) for name in names for index in known[name].partitions]


def is_missing(cluster: Cluster, topic: str) -> bool:
    """True if the broker's last answer was that the topic does not exist."""
    return cluster.metadata.errors.get(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def known_topic_ids(cluster: Cluster, topics: Iterable[str]) -> dict[str, str]:
    """Ids of topics in the cached metadata; brokers before Kafka 2.8 have none."""
    found = {name: cluster.metadata.topics.get(name) for name in topics}
    return {
        name: show_topic_id(info.topic_id)
        for name, info in found.items()
        if info is not None and info.topic_id != NO_TOPIC_ID
    }


def _matcher(pattern: str) -> Callable[[str], object]:
    try:
        return re.compile(pattern).fullmatch
    except re.error as error:
        raise OptionError(
            f"option 'subscribePattern' is not a valid regular expression: {error}"
        ) from None
