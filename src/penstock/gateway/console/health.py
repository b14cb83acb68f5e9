"""Current problems of the cluster as sentences, the worst first."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from penstock.gateway.console.sampler import Detail, Sample, TopicReader
from penstock.gateway.console.visibility import Visibility
from penstock.gateway.console.visible_samples import trend_of
from penstock.gateway.core.cluster_types import Image

BAD, WARNING = "bad", "warning"
PROBLEMS_MAX = 20
DISK_WARNING_PERCENT = 85
DISK_BAD_PERCENT = 95
STUCK_LAG = 100


class Problem(Struct):
    level: str
    text: str
    link: str
    """Console page to open."""


def problems_of(
    visibility: Visibility,
    image: Image,
    detail: Detail,
    samples: Sequence[Sample],
    gauges: Mapping[str, float],
) -> list[Problem]:
    found = [*_cluster_problems(visibility, image, gauges), *_stuck_groups(visibility, samples)]
    if detail.trouble:
        found.append(Problem(WARNING, f"Some groups are missing: {detail.trouble}", "#/groups"))
    for topic, queue in sorted(detail.dead_letters.items()):
        if queue.unfinished and visibility.topic(topic):
            text = f"{_count(queue.unfinished, 'open dead letter')} in {topic}"
            found.append(Problem(WARNING, text, f"#/dlq/{topic}"))
    found.sort(key=lambda problem: problem.level != BAD)
    return found[:PROBLEMS_MAX]


def _cluster_problems(
    visibility: Visibility, image: Image, gauges: Mapping[str, float]
) -> Iterator[Problem]:
    records = [record for topic in image.topics.values() for record in topic.partitions]
    leaderless = sum(record.leader not in image.brokers for record in records)
    behind = sum(len(record.isr) < len(record.replicas) for record in records)
    if leaderless:
        text = f"{_count(leaderless, 'partition')} without a leader: no writes or reads possible"
        yield Problem(BAD, text, "#/nodes?show=leaderless")
    if gauges.get("penstock_partitions_offline"):
        text = "Partitions on this node are offline: a disk has failed, or data is corrupt"
        yield Problem(BAD, text, "#/nodes")
    if gauges.get("penstock_partitions_under_min_isr"):
        text = "Partitions have fewer in-sync replicas than min.insync.replicas: writes are refused"
        yield Problem(BAD, text, "#/nodes?show=behind")
    elif behind:
        text = f"{_count(behind, 'partition')} with out-of-sync replicas"
        yield Problem(WARNING, text, "#/nodes?show=behind")
    if gauges.get("penstock_writes_refused"):
        yield Problem(BAD, "The disk is nearly full: writes are refused", "#/nodes")
    used = gauges.get("penstock_disk_used_percent", 0.0)
    if used >= DISK_WARNING_PERCENT:
        level = BAD if used >= DISK_BAD_PERCENT else WARNING
        yield Problem(level, f"The disk of this node is {used:.0f} % full", "#/nodes")
    if gauges.get("penstock_fenced"):
        yield Problem(BAD, "This node is fenced: it refuses writes", "#/nodes")


def _stuck_groups(visibility: Visibility, samples: Sequence[Sample]) -> Iterator[Problem]:
    """Yields groups whose lag grows while they read nothing."""
    if len(samples) < 2:
        return
    for reader, one in samples[-1].progress.items():
        if one.lag < STUCK_LAG or not (visibility.group(reader[0]) and visibility.topic(reader[1])):
            continue
        trend = trend_of(samples, [reader])
        if trend.per_s > 0 and not trend.read_per_s:
            yield Problem(WARNING, _stuck(reader, one.lag), f"#/groups/{reader[0]}")


def _stuck(reader: TopicReader, lag: int) -> str:
    return f"Group {reader[0]} does not read {reader[1]}: its lag is {lag:,} and growing"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
