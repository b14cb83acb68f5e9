"""Audit log: entries of every node, in order, in the internal topic `__audit`.

Every protocol reports actions (`tell`), which never waits. A task batches the reported entries and
appends each batch at the leader of the topic's one partition: here by a call, elsewhere by
AppendAudit. A failed append is retried; entries that wait meanwhile are bounded
(`security.audit_entries`). A node that dies loses its unwritten entries, a fraction of a second's
worth; one that stops writes them first.

The topic is created with the first entry. It keeps entries for `audit.retention.ms`, and at most
`RETENTION_BYTES`.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.retry import Retry
from penstock.client.errors import code_of
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.coordinator.runtime.internal_producer import InternalProducer
from penstock.coordinator.runtime.internal_topics import InternalTopic, InternalTopics
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.security.audit_entries import AuditedCall, AuditEntry, Trail
from penstock.wire.messages.internal.admin import AppendAuditRequest, AppendAuditResponse
from penstock.wire.records import Record, encode

log = logging.getLogger("penstock.audit")

AUDIT = "__audit"
RETENTION_BYTES = 1 << 30
LINGER_SECONDS = 0.05
AGAIN_SECONDS = 1.0
RETRY_SECONDS = (0.2, 1.0)
ENTRIES_AT_ONCE = 500
CHANNEL = "audit"
TIMEOUT_MS = 15_000


class AuditLog:
    """This node's part of the audit log."""

    def __init__(self, around: HostContext, topics: InternalTopics, configs: BrokerConfigs) -> None:
        self._around = around
        self._topics = topics
        self._configs = configs
        self._trail = Trail(around.peers.node_id)
        self._posting = InternalProducer(around, CHANNEL)
        self._news = asyncio.Event()
        self._is_writing = False
        self.written = 0

    @property
    def is_on(self) -> bool:
        """True if `audit.enable` is set; by default, if ACLs are enforced."""
        wanted = self._configs.text("audit.enable")
        return wanted == "true" or (
            wanted == "auto" and bool(self._configs.text("authorizer.class.name"))
        )

    @property
    def waiting(self) -> int:
        """Returns the number of entries not written yet, including those dropped for lack of
        capacity."""
        return len(self._trail) + self._trail.lost

    def tell(self, audited: AuditedCall) -> None:
        """Adds the entry of an action or a denial."""
        if self.is_on:
            self._trail.note(audited, self._around.time.now_ms())
            self._news.set()

    async def run(self) -> None:
        """Writes waiting entries until cancelled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(LINGER_SECONDS)
            self._news.clear()
            while await self._write_some():
                pass
            if self._trail.has_windows:
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._news.set)

    async def drain(self) -> None:
        """Waits for a short time until everything is written, because the node stops."""
        deadline_s = asyncio.get_running_loop().time() + AGAIN_SECONDS
        while self._trail or self._is_writing:
            if asyncio.get_running_loop().time() >= deadline_s:
                log.warning(
                    "the node stops before all entries of the audit log are written: some are lost"
                )
                return
            await asyncio.sleep(LINGER_SECONDS)

    async def _write_some(self) -> bool:
        entries = self._trail.take(ENTRIES_AT_ONCE, self._around.time.now_ms())
        self._is_writing = bool(entries)
        retry = Retry(self._around.random, *RETRY_SECONDS)
        while entries:
            try:
                await self._append(entries)
            except (Refused, PeerError, OSError, TimeoutError) as error:
                if not retry.failures:
                    log.warning("the audit log cannot be written, trying again: %s", error)
                await retry.pause()
            else:
                self.written += len(entries)
                return True
        return False

    async def _append(self, entries: Sequence[AuditEntry]) -> None:
        retention = str(self._configs.integer("audit.retention.ms"))
        await self._topics.ensure(topic_of(retention))
        image = self._around.watcher.image
        record = image.partition(AUDIT, 0)
        if record is None or record.leader < 0:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {AUDIT} has no leader; try again")
        batch = encode(
            [Record(timestamp=entry.time_ms, value=msgspec.json.encode(entry)) for entry in entries]
        )
        peers = self._around.peers
        if record.leader == peers.node_id:
            await self.append(memoryview(batch))
            return
        request = AppendAuditRequest(batch=bytes(batch))
        answer = await peers.ask(
            record.leader,
            request,
            AppendAuditResponse,
            channel=CHANNEL,
            version=0,
            timeout_ms=TIMEOUT_MS,
        )
        code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            raise Refused(code, answer.error_message)

    async def append(self, batch: memoryview) -> None:
        """Appends a batch of entries, this node's or another's, on the leader."""
        topic = self._around.watcher.image.topics.get(AUDIT)
        if topic is None or topic.partitions[0].leader != self._around.peers.node_id:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await self._posting.append(topic, 0, batch)


def topic_of(retention_ms: str) -> InternalTopic:
    return InternalTopic(
        name=AUDIT,
        partitions=1,
        replication_factor="offsets.topic.replication.factor",
        segment_bytes="offsets.topic.segment.bytes",
        configs={
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.ms": retention_ms,
            "retention.bytes": str(RETENTION_BYTES),
        },
    )
