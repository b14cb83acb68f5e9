"""Partitions of a read, from the current metadata of the cluster."""

import re
from collections.abc import Callable

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.metadata import TopicPartition
from penstock.spark.option_values import OptionError
from penstock.spark.settings import ReadSettings


async def partitions_to_read(cluster: Cluster, settings: ReadSettings) -> list[TopicPartition]:
    """Partitions to read, sorted. Named topics must exist; a pattern may match no topic yet."""
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
    known = {name: await cluster.topic(name) for name in names}
    for where in settings.assigned:
        if where.partition not in known[where.topic].partitions:
            count = len(known[where.topic].partitions)
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"option 'assign': unknown partition {where.partition}: topic {where.topic!r} has "
                f"{count} partitions, 0-{count - 1}",
            )
    if settings.assigned:
        return sorted(settings.assigned)
    return [TopicPartition(name, index) for name in names for index in known[name].partitions]


def _matcher(pattern: str) -> Callable[[str], object]:
    try:
        return re.compile(pattern).fullmatch
    except re.error as error:
        raise OptionError(
            f"option 'subscribePattern' is not a valid regular expression: {error}"
        ) from None
