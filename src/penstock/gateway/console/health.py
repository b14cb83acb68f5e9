"""What is wrong just now, in sentences, the worst first; nothing: all is well."""

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
    """A page of the console."""


def problems_of(
    sight: Visibility,
    image: Image,
    detail: Detail,
    samples: Sequence[Sample],
    gauges: Mapping[str, float],
) -> list[Problem]:
    found = [*_of_cluster(sight, image, gauges), *_of_readers(sight, samples)]
    if detail.trouble:
        found.append(Problem(WARNING, f"Groups are not all known: {detail.trouble}", "#/groups"))
    for topic, queue in sorted(detail.letters.items()):
        if queue.unfinished and sight.topic(topic):
            what = "dead letter waits" if queue.unfinished == 1 else "dead letters wait"
            text = f"{queue.unfinished:,} {what} in {topic}"
            found.append(Problem(WARNING, text, f"#/dlq/{topic}"))
    found.sort(key=lambda problem: problem.level != BAD)
    return found[:PROBLEMS_MAX]


def _of_cluster(sight: Visibility, image: Image, gauges: Mapping[str, float]) -> Iterator[Problem]:
    records = [record for topic in image.topics.values() for record in topic.partitions]
    leaderless = sum(record.leader not in image.brokers for record in records)
    behind = sum(len(record.isr) < len(record.replicas) for record in records)
    if leaderless:
        text = f"{_count(leaderless, 'partition')} without a leader: neither written nor read"
        yield Problem(BAD, text, "#/nodes?show=leaderless")
    if gauges.get("penstock_partitions_offline"):
        text = "Partitions on this node are offline: a disk failed, or data is damaged"
        yield Problem(BAD, text, "#/nodes")
    if gauges.get("penstock_partitions_under_min_isr"):
        text = "Partitions have fewer replicas in sync than min.insync.replicas: writes are refused"
        yield Problem(BAD, text, "#/nodes?show=behind")
    elif behind:
        text = f"{_count(behind, 'partition')} with replicas that are not in sync"
        yield Problem(WARNING, text, "#/nodes?show=behind")
    if gauges.get("penstock_writes_refused"):
        yield Problem(BAD, "The disk is nearly full: writes are refused", "#/nodes")
    used = gauges.get("penstock_disk_used_percent", 0.0)
    if used >= DISK_WARNING_PERCENT:
        level = BAD if used >= DISK_BAD_PERCENT else WARNING
        yield Problem(level, f"The disk of this node is {used:.0f} % full", "#/nodes")
    if gauges.get("penstock_fenced"):
        yield Problem(BAD, "This node is cut off from the cluster and takes no writes", "#/nodes")


def _of_readers(sight: Visibility, samples: Sequence[Sample]) -> Iterator[Problem]:
    """Groups that have something to read, and do not."""
    if len(samples) < 2:
        return
    for reader, line in samples[-1].lines.items():
        if line.lag < STUCK_LAG or not (sight.group(reader[0]) and sight.topic(reader[1])):
            continue
        trend = trend_of(samples, [reader])
        if trend.per_s > 0 and not trend.read_per_s:
            yield Problem(WARNING, _stuck(reader, line.lag), f"#/groups/{reader[0]}")


def _stuck(reader: TopicReader, lag: int) -> str:
    return f"Group {reader[0]} does not read {reader[1]}: {lag:,} behind, and growing"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
