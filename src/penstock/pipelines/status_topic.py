"""Status and control topics of pipelines.

`__pipelines` is a compacted topic: key `pipeline/stage`, value the JSON of a `StageState`. The
console's pipelines page and `penstock pipeline status` read it. `penstock pipeline stop` writes the
pipeline's name to `__pipelines_control`; a running pipeline reads that topic from its end at the
start of the run. No data depends on either topic.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets, partitions_of
from penstock.client.metadata import TopicPartition
from penstock.client.producer.producer import Producer
from penstock.client.producer.sender import ProducerConfig
from penstock.pipelines.progress import StageState
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom

TOPIC: Final = "__pipelines"
CONTROL_TOPIC: Final = "__pipelines_control"
HEARTBEAT_MS: Final = 2_000
"""Interval in which a running pipeline publishes its status even if unchanged."""
LIVENESS_TIMEOUT_MS: Final = 3 * HEARTBEAT_MS
"""Time without a published status after which a pipeline is considered dead."""
_POLL_MS: Final = 100
_CONTROL_RETENTION_MS: Final = 86_400_000


async def ensure_topics(cluster: Cluster) -> None:
    await create_missing(cluster, TOPIC, 1, {"cleanup.policy": "compact"})
    await create_missing(cluster, CONTROL_TOPIC, 1, {"retention.ms": str(_CONTROL_RETENTION_MS)})


async def create_missing(
    cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str]
) -> bool:
    """Creates a topic unless it exists; returns True if it was created."""
    if await has_topic(cluster, name):
        return False
    try:
        await Admin(cluster).create_topic(name, partitions, configs=configs)
    except Refused as refused:
        if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


async def has_topic(cluster: Cluster, name: str) -> bool:
    await cluster.refresh([name])
    return name in cluster.metadata.topics


async def publish_status(cluster: Cluster, states: Iterable[StageState]) -> None:
    """Writes these states to the status topic and waits until they are stored."""
    lines = [(state.key, json.dumps(state.document())) for state in states]
    await _write(cluster, TOPIC, lines)


async def request_stop(cluster: Cluster, pipeline: str, who: str) -> None:
    await ensure_topics(cluster)
    await _write(cluster, CONTROL_TOPIC, [(pipeline, json.dumps({"action": "stop", "by": who}))])


async def _write(cluster: Cluster, topic: str, lines: list[tuple[str, str]]) -> None:
    config = ProducerConfig()
    async with Producer(SystemClock(), SystemRandom(), cluster, config) as producer:
        for key, text in lines:
            await producer.send(topic, text.encode(), key.encode())
        await producer.flush()


async def read_status(cluster: Cluster, pipeline: str | None = None) -> list[dict[str, Any]]:
    """Last status of every stage, sorted by name; of one pipeline or of all."""
    if not await has_topic(cluster, TOPIC):
        return []
    lines: dict[str, dict[str, Any]] = {}
    starts = await list_offsets(
        cluster, dict.fromkeys(await partitions_of(cluster, TOPIC), EARLIEST)
    )
    for message in await _read(cluster, {where: found.offset for where, found in starts.items()}):
        key = (message.key or b"").decode("utf-8", "replace")
        if message.value is None:
            lines.pop(key, None)
            continue
        try:
            line = json.loads(message.value)
        except ValueError:
            continue
        if isinstance(line, dict) and line.get("pipeline") and line.get("stage"):
            lines[key] = line
    found = [lines[key] for key in sorted(lines)]
    return [line for line in found if pipeline is None or line["pipeline"] == pipeline]


class StopRequests:
    """Reader of stop requests for one pipeline, from now on."""

    def __init__(self, cluster: Cluster, pipeline: str) -> None:
        self._cluster = cluster
        self._pipeline = pipeline.encode()
        self._positions: dict[TopicPartition, int] | None = None

    async def begin(self) -> None:
        places = await partitions_of(self._cluster, CONTROL_TOPIC)
        ends = await list_offsets(self._cluster, dict.fromkeys(places, LATEST))
        self._positions = {where: found.offset for where, found in ends.items()}

    async def stop_requested_by(self) -> str | None:
        """User who has requested a stop since the last call; None without a request."""
        assert self._positions is not None, "begin first"
        who = None
        for message in await _read(self._cluster, self._positions):
            where = TopicPartition(message.topic, message.partition)
            self._positions[where] = message.offset + 1
            if message.key == self._pipeline and message.value is not None:
                try:
                    who = str(json.loads(message.value).get("by", "an unknown user"))
                except (ValueError, AttributeError):
                    who = "an unknown user"
        return who


async def _read(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> list[FetchedRecord]:
    """Records from these offsets to the current end."""
    asked = dict.fromkeys(positions, LATEST)
    ends = {where: found.offset for where, found in (await list_offsets(cluster, asked)).items()}
    left = {where: start for where, start in positions.items() if start < ends[where]}
    messages: list[FetchedRecord] = []
    async with Consumer(cluster, ConsumerConfig(reset=EARLIEST, max_wait_ms=_POLL_MS)) as consumer:
        consumer.assign(left)
        while consumer.positions:
            messages += await consumer.poll(_POLL_MS)
            for where, position in dict(consumer.positions).items():
                if position >= ends[where]:
                    consumer.unassign(where)
    return messages
