"""Groups with an offset in a topic: collected from every node, since each stores some of them.

Share groups have state in a shard of `__share_group_state`, consumer groups commit to a shard of
`__consumer_offsets`. A listing of the whole cluster says whether it is complete: whether every
shard of both answered. A caller that deletes by it must require that.

A node reports only what is committed: the answer of each shard waits until everything before it is.
The start offset of a share group is known to the leader of the partition (`queues.admin`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import FairScheduler, Steps, run_to_end
from penstock.base.ids import TopicId
from penstock.base.state_machine import Decision, Machine, Token
from penstock.client.errors import code_of
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.queues.state_store import QueueStateStore
from penstock.coordinator.runtime.shard_host import HostContext, ask
from penstock.coordinator.runtime.shard_runtime import ShardRuntime
from penstock.state.groups.config import TopicCatalogue
from penstock.state.groups.offsets import OffsetKey
from penstock.state.groups.records import OffsetValue
from penstock.state.groups.shard import GroupShard
from penstock.state.queues.state_shard import QueueKey, StateShard
from penstock.wire.messages.internal.queue_admin import (
    KeptPosition,
    ListPositionsRequest,
    ListPositionsResponse,
)

CHANNEL = "positions"
VERSION = 0
TIMEOUT_MS = 15_000
ROWS_MAX = 500_000
NO_OFFSET = -1

S = TypeVar("S", bound=Machine)


class PositionKind(IntEnum):
    SHARE = 0
    CONSUMER = 1


ALL_KINDS = tuple(PositionKind)


class GroupPosition(NamedTuple):
    kind: PositionKind
    group: str
    topic: str
    partition: int
    offset: int = NO_OFFSET
    """Of a consumer group: the next record to read."""


@dataclass(slots=True)
class Listing:
    """Offsets of groups, and the shards that reported them."""

    positions: list[GroupPosition] = field(default_factory=list)
    state_shards: list[int] = field(default_factory=list)
    group_shards: list[int] = field(default_factory=list)


class Positions:
    """Offsets of groups, on this node and in the cluster."""

    def __init__(
        self, around: HostContext, keeping: QueueStateStore, groups: GroupCoordinator
    ) -> None:
        self._around = around
        self._keeping = keeping
        self._groups = groups
        self._scheduler = FairScheduler()
        """Of listings: they are long, and several callers may ask at once."""

    # -- here -------------------------------------------------------------------------------

    async def here(
        self,
        topics: Collection[str] | None,
        kinds: Collection[PositionKind] = ALL_KINDS,
        holder: str = "",
    ) -> Listing:
        """Returns offsets stored in the shards here, in these topics or in all.

        `holder`: on whose behalf, for fair scheduling.
        """
        wanted = None if topics is None else frozenset(topics)
        listing = Listing()
        # Every shard is asked before the first answer is awaited.
        states = groups = []
        if PositionKind.SHARE in kinds:
            states = _ask_all(self._keeping.host.active(), self._share_positions(wanted))
        if PositionKind.CONSUMER in kinds:
            groups = _ask_all(self._groups.host.active(), _consumer_positions(wanted))
        found: list[Steps[list[GroupPosition]]] = []
        for asked, heard in ((states, listing.state_shards), (groups, listing.group_shards)):
            for index, answer in asked:
                try:
                    found.append(await answer)
                except Refused:
                    continue  # It has moved: its new leader reports it, if there is one.
                heard.append(index)
        listing.positions = await self._scheduler.do(holder, _joined(found))
        if len(listing.positions) > ROWS_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"more than {ROWS_MAX} offsets to list: name topics"
            )
        return listing

    def _share_positions(
        self, wanted: frozenset[str] | None
    ) -> Callable[[StateShard, Token, int], Decision]:
        by_id = self._around.watcher.image.topics_by_id

        def rows(keys: Sequence[QueueKey]) -> Steps[list[GroupPosition]]:
            found = []
            for key in keys:
                yield
                topic = by_id.get(TopicId(key.topic_id))
                if topic is not None and (wanted is None or topic.name in wanted):
                    found.append(
                        GroupPosition(PositionKind.SHARE, key.group, topic.name, key.partition)
                    )
            return found

        def decide(shard: StateShard, token: Token, now_ms: int) -> Decision:
            return Decision(replies=((token, rows(list(shard.queues()))),))

        return decide

    # -- everywhere -------------------------------------------------------------------------

    async def everywhere(
        self,
        topics: Collection[str] | None,
        kinds: Collection[PositionKind] = ALL_KINDS,
        holder: str = "",
    ) -> Listing:
        """Returns offsets of these kinds on all nodes; refuses unless every shard answered."""
        nodes = list(self._around.watcher.image.brokers)
        found = await asyncio.gather(
            *(self._ask(node_id, topics, kinds, holder) for node_id in nodes)
        )
        listing = Listing()
        for one in found:
            listing.positions += one.positions
            listing.state_shards += one.state_shards
            listing.group_shards += one.group_shards
        if PositionKind.SHARE in kinds:
            self._require_all(self._keeping.host.topic, listing.state_shards)
        if PositionKind.CONSUMER in kinds:
            self._require_all(self._groups.host.topic, listing.group_shards)
        return listing

    def _require_all(self, name: str, heard: Iterable[int]) -> None:
        """Refuses unless every partition of an internal topic answered; a topic that does not exist
        has none."""
        topic = self._around.watcher.image.topics.get(name)
        missing = set(range(len(topic.partitions) if topic is not None else 0)) - set(heard)
        if missing:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{name}-{min(missing)} did not answer; retry later",
            )

    async def _ask(
        self,
        node_id: int,
        topics: Collection[str] | None,
        kinds: Collection[PositionKind],
        holder: str,
    ) -> Listing:
        if node_id == self._around.peers.node_id:
            return await self.here(topics, kinds, holder)
        request = ListPositionsRequest(topics=None if topics is None else sorted(topics))
        try:
            response = await self._around.peers.ask(
                node_id,
                request,
                ListPositionsResponse,
                channel=CHANNEL,
                version=VERSION,
                timeout_ms=TIMEOUT_MS,
            )
            if response.error_code:
                raise Refused(code_of(response.error_code), response.error_message)
        except PEER_ERRORS as error:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        listing = await self._scheduler.do(holder, _listing_steps(response))
        listing.positions = [row for row in listing.positions if row.kind in kinds]
        return listing


def _joined(parts: Iterable[Steps[list[GroupPosition]]]) -> Steps[list[GroupPosition]]:
    found = []
    for part in parts:
        yield
        found += yield from part
    return found


def _ask_all(
    runtimes: Iterable[tuple[ShardRuntime[S], S]], decide: Callable[[S, Token, int], Decision]
) -> list[tuple[int, "asyncio.Future[Steps[list[GroupPosition]]]"]]:
    """Returns pending answers of every shard that can be asked now, by its index."""
    asked = []
    for runtime, _ in runtimes:
        try:
            asked.append((runtime.partition.index, ask(runtime, decide)))
        except Refused:
            continue
    return asked


def _consumer_positions(
    wanted: frozenset[str] | None,
) -> Callable[[GroupShard, Token, int], Decision]:
    def rows(
        committed: Mapping[str, Mapping[OffsetKey, OffsetValue]], topics: TopicCatalogue
    ) -> Steps[list[GroupPosition]]:
        found = []
        for group in sorted(committed):
            for place in sorted(committed[group]):
                yield
                topic, partition = place
                value = committed[group][place]
                if value.is_in(topics.id_of(topic)) and (wanted is None or topic in wanted):
                    found.append(
                        GroupPosition(PositionKind.CONSUMER, group, topic, partition, value.offset)
                    )
        return found

    def decide(shard: GroupShard, token: Token, now_ms: int) -> Decision:
        # The steps run later, and are to tell what is committed now.
        committed = {group: dict(places) for group, places in shard.offsets.committed.items()}
        return Decision(replies=((token, rows(committed, shard.topics)),))

    return decide


def listing_of(response: ListPositionsResponse) -> Listing:
    return run_to_end(_listing_steps(response))


def _listing_steps(response: ListPositionsResponse) -> Steps[Listing]:
    rows = []
    for row in response.positions:
        yield
        if row.kind in ALL_KINDS:
            kind = PositionKind(row.kind)
            rows.append(GroupPosition(kind, row.group_id, row.topic, row.partition, row.offset))
    return Listing(rows, list(response.state_shards), list(response.group_shards))


def response_of(listing: Listing) -> ListPositionsResponse:
    return ListPositionsResponse(
        error_code=ErrorCode.NONE,
        state_shards=listing.state_shards,
        group_shards=listing.group_shards,
        positions=[
            KeptPosition(
                kind=row.kind,
                group_id=row.group,
                topic=row.topic,
                partition=row.partition,
                offset=row.offset,
            )
            for row in listing.positions
        ],
    )
