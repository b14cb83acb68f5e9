"""Recommended consumer counts of groups and queues, for autoscalers that poll every few seconds.

Keeps samples of each group from earlier requests, to compute rates at the next one. Samples stay on
this node, for the `GROUPS_MAX` groups requested last. An autoscaler whose requests reach different
nodes gets the same result from a node's second request on.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.client.admin.scaling import (
    GroupProgress,
    PartitionLag,
    Scaling,
    ScalingTarget,
    group_progress,
    scale,
)
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.coordinator_calls import CoordinatorCalls, raise_for
from penstock.gateway.core.groups import Groups
from penstock.gateway.core.permissions import may, require_group
from penstock.gateway.core.queues import Queues
from penstock.gateway.core.topics import LATEST, TopicAdmin
from penstock.wire.messages.offset_commit import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

GROUPS_MAX = 1_000
SAMPLE_INTERVAL_S = 10.0
"""Minimum time between two samples."""
SAMPLES_MAX = 4
SAMPLE_AGE_MAX_S = 300.0
SHARE = "share"


class Scaled(NamedTuple):
    """Scaling recommendation of a group with its inputs."""

    kind: str
    members: int
    now: GroupProgress
    scaling: Scaling


@dataclass(slots=True)
class _History:
    samples: list[GroupProgress] = field(default_factory=list)
    member_per_s: float | None = None
    """Last rate of a member measured while the members were busy."""

    def before(self, now_s: float) -> GroupProgress | None:
        """Returns the oldest sample of the last `SAMPLE_AGE_MAX_S`."""
        self.samples = [one for one in self.samples if now_s - one.at_s <= SAMPLE_AGE_MAX_S]
        return self.samples[0] if self.samples else None

    def add(self, now: GroupProgress) -> None:
        if self.samples and self.samples[-1].partitions != now.partitions:
            self.samples.clear()
        if not self.samples or now.at_s - self.samples[-1].at_s >= SAMPLE_INTERVAL_S:
            self.samples.append(now)
            del self.samples[:-SAMPLES_MAX]


class GroupScaling:
    """Recommends consumer counts; one instance per gateway."""

    def __init__(
        self,
        ctx: Context,
        coordinators: CoordinatorCalls,
        topics: TopicAdmin,
        groups: Groups,
        queues: Queues,
    ) -> None:
        self._ctx = ctx
        self._coordinators = coordinators
        self._topics = topics
        self._groups = groups
        self._queues = queues
        self._histories: OrderedDict[str, _History] = OrderedDict()

    async def one(self, principal: Principal, group: str, target: ScalingTarget) -> Scaled:
        """Returns a group's recommendation; refuses (GROUP_ID_NOT_FOUND) if it is unknown."""
        described = await self._groups.one(principal, group)
        is_queue = described.kind == SHARE
        rows = await (self._queue if is_queue else self._log)(principal, group)
        now = group_progress(asyncio.get_running_loop().time(), rows)
        history = self._history(group)
        members = len(described.members)
        before = history.before(now.at_s)
        found = scale(
            before, now, members, target, is_queue=is_queue, known_rate=history.member_per_s
        )
        if before is not None and before.lag and now.lag and members and found.read_per_s:
            history.member_per_s = found.read_per_s / members
        history.add(now)
        return Scaled(described.kind, members, now, found)

    def _history(self, group: str) -> _History:
        history = self._histories.setdefault(group, _History())
        self._histories.move_to_end(group)
        while len(self._histories) > GROUPS_MAX:
            self._histories.popitem(last=False)
        return history

    async def _log(self, principal: Principal, group: str) -> dict[tuple[str, int], PartitionLag]:
        """Returns a consumer group's committed offsets and the end offsets."""
        require_group(self._ctx, principal, Operation.DESCRIBE, group)
        response = await self._coordinators.ask(
            principal,
            group,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]),
            OffsetFetchResponse,
            lambda answer: [row.error_code for row in answer.groups],
        )
        raise_for(response.groups[0].error_code)
        rows: dict[tuple[str, int], PartitionLag] = {}
        for committed in response.groups[0].topics:
            topic = self._ctx.image.topics.get(committed.name)
            if topic is None or not may(
                self._ctx, principal, Operation.DESCRIBE, ResourceType.TOPIC, topic.name
            ):
                continue
            ends = await self._topics.offsets_at(principal, topic, LATEST)
            for place in committed.partitions:
                index = place.partition_index
                if not place.error_code and place.committed_offset >= 0 and index in ends:
                    rows[topic.name, index] = PartitionLag(place.committed_offset, ends[index])
        return rows

    async def _queue(self, principal: Principal, group: str) -> dict[tuple[str, int], PartitionLag]:
        """Returns a share group's progress in each partition."""
        rows: dict[tuple[str, int], PartitionLag] = {}
        for topic, _ in await self._queues.all(principal, group=group):
            for report in (await self._queues.one(principal, topic, group)).partitions:
                end = report.high_watermark
                rows[topic, report.partition] = PartitionLag(end - report.unfinished, end)
        return rows
