"""Copies records from topic to topic exactly once: writes and offset commit in one transaction.

A copier is a member of a group (of either protocol) and a transactional producer. Before it reads a
partition, it fetches its stable committed offset. The written records and the new offset are part
of one transaction, with the group membership at its start (KIP-447). Every failure ends in an abort
or in a new identity, and the copier fetches the offset again.
"""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ErrorCode
from penstock.client.consumer.fetched import Fetched, next_offset_after
from penstock.client.errors import RETRIABLE
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.wire.messages.offset_commit import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from simulation.checkers.copies import Copy, CopyChecker, Txn
from simulation.checkers.groups import Place
from simulation.checkers.identities import IdentityChecker
from simulation.client import NO_REPLY
from simulation.workloads.members import GROUP, Member
from simulation.workloads.transactions import Membership, TxnFailed, TxnProducer

if TYPE_CHECKING:
    from simulation.client import SimClient

RECORDS_MAX: Final = 6
LINGER_S: Final = 4.0
"""Maximum time for which a complete transaction stays open."""
FETCH_BYTES: Final = 400
FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


@dataclass(slots=True)
class CopyJob:
    """State shared by all copiers of a run."""

    source: str
    targets: list[TopicPartition]
    copies: CopyChecker
    identities: IdentityChecker
    positions: dict[Place, tuple[int, float]] = field(default_factory=dict)
    """Highest stable offset in a reply, and the time of the reply."""
    _names: "itertools.count[int]" = field(default_factory=itertools.count)

    def next_name(self, copier: str) -> str:
        return f"{copier}/{next(self._names)}"


async def stable_position(client: "SimClient", group: str, place: Place) -> int | None:
    """Committed offset of the group if no open transaction may change it; None: ask again."""
    topic, index = place
    rows = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=rows)], require_stable=True
    )
    reply = await client.ask_coordinator(GROUP, group, request, OffsetFetchResponse, version=9)
    found = reply.groups[0]
    code = client.note_reply("OffsetFetch", found.error_code, GROUP, group)
    if code is ErrorCode.NONE:
        row = found.topics[0].partitions[0]
        code = client.note_reply("OffsetFetch", row.error_code, GROUP, group)
        if code is ErrorCode.NONE:
            return max(row.committed_offset, 0)
    assert code in RETRIABLE, code
    return None


class Copier:
    """Instance of the copying application."""

    def __init__(self, job: CopyJob, member: Member, producer: TxnProducer) -> None:
        self.job = job
        self.member = member
        self.producer = producer
        self.client = member.client
        self.world = member.world
        self.rng = self.world.rng(f"copier/{self.client.name}")
        self.is_replaced = False
        """True after another instance has taken over: this one ends when it is fenced."""
        self._known: dict[Place, tuple[Membership, int]] = {}

    async def run(self) -> None:
        """Copies until fenced by its successor, or killed."""
        await self._initialise(keep=False)
        while not (self.is_replaced and self.producer.producer_id < 0):
            await asyncio.sleep(self.rng.uniform(0.1, 0.6))
            places = sorted(self.member.owned)
            if not self.member.is_in or not places:
                continue
            try:
                await self._copy_from(self.rng.choice(places))
            except NO_REPLY:
                self._known.clear()
        self.member.is_leaving = True

    async def _initialise(self, *, keep: bool) -> None:
        while True:
            try:
                await self.producer.initialise(keep=keep)
                return
            except TxnFailed as failed:
                if self.is_replaced and failed.code in FENCED:
                    self.world.reached("zombie fenced")
                    self.producer.producer_id = -1
                    return
                # A replaced instance must not fence its successor.
                keep = keep and self.is_replaced

    # -- one transaction --------------------------------------------------------------------

    async def _copy_from(self, place: Place) -> None:
        member = self.member
        who = Membership(member.group, member.member_id, member.epoch, member.instance)
        known = self._known.get(place)
        if known is not None and known[0] == who:
            offset = known[1]
        else:
            found = await self._position(place)
            if found is None:
                return
            offset = found
        values = await self._read(place, offset)
        if not values:
            self._known[place] = (who, offset)
            return
        self._known.pop(place, None)
        txn = self.job.copies.began(self.job.next_name(self.client.name))
        try:
            await self._write(txn, place, values)
            next_offset = values[-1] + 1
            await self.producer.commit_offset(who, TopicPartition(*place), next_offset)
            if self.rng.random() < 0.15:
                await asyncio.sleep(self.rng.uniform(0, LINGER_S))
            is_committed = self.rng.random() < 0.85
            txn.is_commit_asked = is_committed
            await self.producer.end(committed=is_committed)
        except TxnFailed as failed:
            await self._give_up(txn, failed)
            return
        if is_committed:
            self.job.copies.committed(txn)
            self._known[place] = (who, next_offset)
        else:
            self.job.copies.aborted(txn)

    async def _write(self, txn: Txn, place: Place, offsets: list[int]) -> None:
        shares: dict[TopicPartition, list[Copy]] = {}
        for offset in offsets:
            target = self.job.targets[offset % len(self.job.targets)]
            shares.setdefault(target, []).append(Copy(txn.name, *place, offset))
        for target, copies in shares.items():
            await self.producer.produce(target, [copy.encode() for copy in copies])
            txn.copies.update(dict.fromkeys(((target.topic, target.partition), c) for c in copies))

    async def _give_up(self, txn: Txn, failed: TxnFailed) -> None:
        """Ends a failed transaction, which may have been committed."""
        self.world.reached(f"transaction failed: {failed}")
        if txn.is_commit_asked:
            if not failed.is_unknown:
                self.job.copies.aborted(txn)
            await self._start_anew(failed)
            return
        if failed.code in FENCED:
            await self._start_anew(failed)
            return
        try:
            await self.producer.end(committed=False)
        except TxnFailed as again:
            await self._start_anew(again)
            return
        self.job.copies.aborted(txn)
        if not self.producer.is_v2:
            # Requests in flight must not get into the next transaction.
            await self._initialise(keep=True)

    async def _start_anew(self, failed: TxnFailed) -> None:
        if failed.code in FENCED and self.is_replaced:
            self.world.reached("zombie fenced")
            self.producer.producer_id = -1
            return
        keep = self.is_replaced or (failed.code not in FENCED and self.rng.random() < 0.5)
        await self._initialise(keep=keep)

    # -- reading ----------------------------------------------------------------------------

    async def _position(self, place: Place) -> int | None:
        asked_at = self.world.now()
        found = await stable_position(self.client, self.member.group, place)
        if found is not None:
            self.saw_position(place, found, asked_at)
        return found

    def saw_position(self, place: Place, offset: int, asked_at: float) -> None:
        known, told_at = self.job.positions.get(place, (0, -1.0))
        if offset < known and told_at < asked_at:
            self.world.violate("regression", f"{place} went back from {known} to {offset}")
        if offset > known:
            self.job.positions[place] = (offset, self.world.now())

    async def _read(self, place: Place, offset: int) -> list[int]:
        """Offsets of the next few records."""
        where = TopicPartition(*place)
        info = await self.client.topic(where.topic)
        row = FetchPartition(
            partition=where.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        topic = FetchTopic(topic=where.topic, topic_id=info.topic_id, partitions=[row])
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, max_bytes=FETCH_BYTES, isolation_level=1, topics=[topic]
        )
        reply = await self.client.ask_leader(where, request, FetchResponse)
        if not reply.responses:
            return []
        data = reply.responses[0].partitions[0]
        code = self.client.note_reply("Fetch", data.error_code)
        if code is not ErrorCode.NONE or data.records is None:
            assert code is ErrorCode.NONE or code in RETRIABLE, code
            return []
        assert isinstance(data.records, memoryview)
        fetched = Fetched(
            where=where,
            offset=offset,
            next_offset=next_offset_after(data.records, offset),
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
            records=data.records,
            aborted=data.aborted_transactions or (),
        )
        count = self.rng.randint(1, RECORDS_MAX)
        return [message.offset for message in itertools.islice(fetched.messages(), count)]
