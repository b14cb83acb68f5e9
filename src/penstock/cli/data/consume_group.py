"""`penstock consume -g`: reads as a member of a consumer group, like rpk and kcat -G.

The group's coordinator assigns partitions (KIP-848) and revokes them when other members join. An
offset is committed after the records before it were printed: about every second, when a partition
is revoked, and at the end, also after Ctrl-C. So the members of the group print every record at
least once; after a crash some records are printed again. `-o` sets the start of partitions without
a committed offset.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cli.terminal.errors import UserError

if TYPE_CHECKING:
    from penstock.cli.data.consume import ConsumePlan
    from penstock.cli.terminal.session import CommandSession
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.consumer.fetched import FetchedRecord
    from penstock.client.metadata import TopicPartition
    from penstock.client.offset_syntax import OffsetPosition

COMMIT_SECONDS = 1.0
LOOK_SECONDS = 0.05
HINT_SECONDS = 3.0
"""Time without a partition after which the command prints a hint."""


def check_plan(plan: ConsumePlan) -> None:
    """Raises UserError for options that cannot be combined with a group."""
    from penstock.base.ids import Millis
    from penstock.client.offset_syntax import OffsetSyntaxError, parse_position

    if plan.partitions is not None:
        raise UserError("-g lets the group assign the partitions: leave out -p")
    try:
        parse_position(plan.offsets, Millis(0))
    except OffsetSyntaxError as error:
        raise UserError(
            f"-o {error}: with -g it is the start of partitions without a committed offset"
        ) from None


async def read_as_member(
    session: CommandSession,
    plan: ConsumePlan,
    group: str,
    render: Callable[[FetchedRecord], bytes],
    write: Callable[[bytes], object],
    flush: Callable[[], object],
) -> None:
    """Reads until `-n` records are printed or, with `-e`, the initial ends are reached."""
    from penstock.cli.terminal.session import require_topics
    from penstock.client.consumer.consumer import ConsumerConfig
    from penstock.client.consumer.group_member import GroupListener, GroupMember
    from penstock.client.list_offsets import EARLIEST, LATEST
    from penstock.client.offset_syntax import END, parse_position

    await require_topics(session, plan.topics)
    begin = parse_position(plan.offsets, session.clock.now_ms())
    config = ConsumerConfig(
        isolation_level=int(plan.committed), reset=LATEST if begin == END else EARLIEST
    )
    async with session.consumer(config) as consumer:
        reading = GroupReading(session, plan, group, begin, consumer)
        listener = GroupListener(
            reading.assigned, reading.revoked, reading.lost, reading.member_failed
        )
        member = reading.member = GroupMember(session.cluster, group, plan.topics, listener)
        try:
            await member.join()
            await reading.run(render, write, flush)
        finally:
            try:
                await reading.commit()
            finally:
                await member.leave()


class GroupReading:
    """Assigned partitions of a member, with its printed and committed offsets."""

    def __init__(
        self,
        session: CommandSession,
        plan: ConsumePlan,
        group: str,
        begin: OffsetPosition,
        consumer: Consumer,
    ) -> None:
        from penstock.client.consumer.group_member import GroupMember

        self.member: GroupMember | None = None
        self._session = session
        self._plan = plan
        self._group = group
        self._begin = begin
        self._consumer = consumer
        self._printed: dict[TopicPartition, int] = {}
        """Offsets after the printed records, not committed yet."""
        self._ends: dict[TopicPartition, int] = {}
        """With `-e`: end offset of each partition when it was assigned."""
        self._committed_s = self._now_s()
        self._failure: Exception | None = None

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def run(
        self,
        render: Callable[[FetchedRecord], bytes],
        write: Callable[[bytes], object],
        flush: Callable[[], object],
    ) -> None:
        left = self._plan.limit
        hint_s = self._now_s() + HINT_SECONDS
        while not self._is_through():
            if self._failure is not None:
                raise self._failure
            if not self._consumer.positions:
                if self._now_s() >= hint_s:
                    hint_s = float("inf")
                    print(
                        f"penstock: other members of group {self._group!r} read all partitions; "
                        "waiting for one",
                        file=sys.stderr,
                    )
                await asyncio.sleep(LOOK_SECONDS)
                continue
            hint_s = float("inf")
            # No await between here and the flush: a partition revoked later was printed.
            for fetched in await self._consumer.fetch():
                if fetched.where not in self._consumer.positions:
                    continue
                for message in fetched.messages():
                    write(render(message))
                    if left is not None:
                        left -= 1
                        if left == 0:
                            flush()
                            self._printed[fetched.where] = message.offset + 1
                            return
                flush()
                self._printed[fetched.where] = fetched.next_offset
            if self._now_s() - self._committed_s >= COMMIT_SECONDS:
                await self.commit()

    def _is_through(self) -> bool:
        positions = self._consumer.positions
        if self._plan.follow or not positions:
            return False
        return all(positions[where] >= end for where, end in self._ends.items())

    async def commit(self) -> None:
        """Commits the offsets of what was printed."""
        printed, self._printed = self._printed, {}
        self._committed_s = self._now_s()
        if printed:
            assert self.member is not None
            await self.member.commit(printed)

    # Callbacks of the group membership.

    async def assigned(self, added: list[TopicPartition]) -> None:
        from penstock.client.committed_offsets import committed_offsets
        from penstock.client.list_offsets import LATEST, list_offsets, resolve
        from penstock.client.offset_syntax import OffsetRange

        cluster, isolation = self._session.cluster, int(self._plan.committed)
        known = await committed_offsets(cluster, self._group)
        starts = {where: known[where].offset for where in added if where in known}
        missing = [where for where in added if where not in starts]
        if missing:
            spans = await resolve(
                cluster, missing, OffsetRange(self._begin), isolation_level=isolation
            )
            starts |= {where: span.start for where, span in spans.items()}
        if not self._plan.follow:
            wanted = dict.fromkeys(added, LATEST)
            ends = await list_offsets(cluster, wanted, isolation_level=isolation)
            self._ends |= {where: found.offset for where, found in ends.items()}
        self._consumer.assign({**self._consumer.positions, **starts})

    async def revoked(self, gone: list[TopicPartition]) -> None:
        for where in gone:
            self._consumer.unassign(where)
            self._ends.pop(where, None)
        await self.commit()

    def lost(self) -> None:
        """Drops all partitions: other members own them and continue at the committed offsets."""
        self._consumer.assign({})
        self._printed.clear()
        self._ends.clear()

    def member_failed(self, error: Exception) -> None:
        self._failure = error
