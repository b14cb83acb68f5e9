"""Metadata store of a cluster: etcd, through its JSON gateway (ADR 0010).

Owns the mapping of the port to etcd. Every key lies under the configured prefix. Invariants:

- reads are linearizable: an etcd member asks its leader before it responds;
- a commit is one transaction, sent once; without a clear response it raises `UnknownResult`;
- a watch resumes from the last delivered revision, over any number of lost connections and members;
  only if that revision was compacted does it raise `WatchLost`;
- an etcd with an older revision than before, with other changes at a revision that a watch has
  delivered, or of another cluster, has lost its data or was replaced: raises `Corrupt`, and the
  node must stop. The revision alone does not tell, once new writes have reached it again.

`channel` handles tokens and retries, `pool` endpoints.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby

import msgspec

from penstock.base.errors import Corrupt
from penstock.base.ports import Change, Delete, Expect, Put, StoreEntry, WatchLost
from penstock.base.retry import Retry
from penstock.base.store_model import check_size
from penstock.runtime.etcd import messages
from penstock.runtime.etcd.channel import Channel
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.etcd.http import AnswerTooLarge, EtcdConnection
from penstock.runtime.etcd.pool import EtcdRefused
from penstock.runtime.random import SystemRandom

PAGE_ENTRIES = 1_000
"""Page size of a range read, which bounds the size of a response."""
RANGE_ATTEMPTS = 5
QUIET_S = 3.0
"""Silence after which a watch checks that its member still responds."""
RESUME_S = (0.05, 1.0)
"""Bounds of the backoff before an ended watch is resumed."""


class EtcdStore:
    """Implements `penstock.base.ports.Store`. Created by `open`."""

    def __init__(self, channel: Channel, prefix: str) -> None:
        self.random = SystemRandom()
        self._channel = channel
        self._prefix = prefix.encode()
        self._revision = 0
        self._cluster_id = 0

    @classmethod
    async def open(cls, config: EtcdConfig) -> "EtcdStore":
        """Connects to etcd. Raises ConnectionError or TimeoutError, with a reason per endpoint."""
        channel = Channel(config)
        store = cls(channel, config.prefix)
        try:
            await channel.start()
            await store.get("/")  # Reports a missing permission at once.
        except BaseException:
            channel.close()
            raise
        return store

    # Reading.

    async def get(self, key: str) -> StoreEntry | None:
        answer = await self._range({"key": self._key(key)})
        return self._entry(answer.kvs[0]) if answer.kvs else None

    async def range(self, prefix: str) -> tuple[int, list[StoreEntry]]:
        for _ in range(RANGE_ATTEMPTS):
            try:
                return await self._read_pages(self._key(prefix))
            except EtcdRefused as refused:
                if refused.code != messages.CODE_OUT_OF_RANGE:
                    raise
                # The revision was compacted between two pages.
        raise TimeoutError(
            f"etcd compacted the revision during each of {RANGE_ATTEMPTS} reads of {prefix}"
        )

    async def _read_pages(self, start: bytes) -> tuple[int, list[StoreEntry]]:
        end, revision = _end_of(start), 0
        entries: list[StoreEntry] = []
        while True:
            answer = await self._range(
                {"key": start, "range_end": end, "limit": PAGE_ENTRIES, "revision": revision}
            )
            revision = revision or answer.header.revision
            entries += map(self._entry, answer.kvs)
            if not answer.more:
                return revision, entries
            start = answer.kvs[-1].key + b"\0"

    async def _range(self, request: dict[str, object]) -> messages.RangeResponse:
        floor = self._revision
        answer = await self._channel.read("/v3/kv/range", request, messages.RangeResponse)
        self._see(answer.header, floor)
        return answer

    # Changing.

    async def commit(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> int | None:
        check_size(expects, changes)
        request = {
            "compare": [
                {
                    "target": "MOD",
                    "result": "EQUAL",
                    "key": self._key(expect.key),
                    "mod_revision": expect.revision,
                }
                for expect in expects
            ],
            "success": [self._operation(change) for change in changes],
        }
        floor = self._revision
        try:
            answer = await self._channel.change("/v3/kv/txn", request, messages.TxnAnswer)
        except EtcdRefused as refused:
            if refused.code == messages.CODE_NOT_FOUND:  # The lease of a put.
                return None
            raise
        self._see(answer.header, floor)
        return answer.header.revision if answer.succeeded else None

    def _operation(self, change: Put | Delete) -> dict[str, object]:
        key = self._key(change.key)
        if isinstance(change, Delete):
            return {"request_delete_range": {"key": key}}
        return {"request_put": {"key": key, "value": change.value, "lease": change.lease}}

    # Watching.

    async def watch(self, prefix: str, after: int) -> AsyncIterator[list[Change]]:
        start = self._key(prefix)
        retry = Retry(self.random, *RESUME_S)
        # Changes that this watch knows at revision `after`; None: unknown, as after a range read.
        delivered: list[Change] | None = None
        while not self._channel.is_closed:
            resumed_at = 0 if delivered is None else after
            request = {
                "key": start,
                "range_end": _end_of(start),
                "start_revision": resumed_at or after + 1,
                "progress_notify": True,
            }
            connection = None
            try:
                connection = await self._channel.stream("/v3/watch", {"create_request": request})
                if resumed_at:  # An idle etcd that was restored would never tell.
                    await self._range({"key": start, "count_only": True})
                while True:
                    answer = await self._next_answer(connection)
                    for changes in self._by_revision(answer):
                        if changes[0].revision <= resumed_at:
                            _check_history(changes, delivered or (), after)
                        else:
                            after, delivered = changes[0].revision, changes
                            self._revision = max(self._revision, after)
                            yield changes
                    if not answer.events and not answer.created and answer.header.revision > after:
                        after, delivered = answer.header.revision, []  # No change up to there.
                    retry.succeeded()
            except AnswerTooLarge as error:
                raise WatchLost(str(error)) from error
            except (ConnectionError, TimeoutError) as error:
                if self._channel.is_closed:
                    return
                if connection is not None:
                    self._channel.leave(connection.endpoint, error)
            finally:
                if connection is not None:
                    connection.close()
            await retry.pause()

    async def _next_answer(self, connection: EtcdConnection) -> messages.WatchAnswer:
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    line = await connection.next_line()
                break
            except TimeoutError:
                # A stopped process keeps its connections open, and is silent.
                await self._channel.check(connection.endpoint)
        if line is None:
            raise ConnectionResetError(f"{connection.endpoint} ended the watch")
        try:
            told = messages.decode(messages.WatchLine, line)
        except msgspec.DecodeError as error:
            raise ConnectionError(
                f"{connection.endpoint} sent an invalid watch response: {error}"
            ) from error
        if told.result is None:
            failure = told.error or messages.EtcdFailure()
            raise self._channel.judge(connection.endpoint, failure)
        answer = told.result
        if answer.compact_revision:
            raise WatchLost(f"etcd has compacted the revisions below {answer.compact_revision}")
        if answer.canceled:
            failure = messages.EtcdFailure(_code_of(answer.cancel_reason), answer.cancel_reason)
            raise self._channel.judge(connection.endpoint, failure)
        return answer

    def _by_revision(self, answer: messages.WatchAnswer) -> Iterator[list[Change]]:
        for revision, events in groupby(answer.events, lambda event: event.kv.mod_revision):
            yield [
                Change(
                    self._name(event.kv.key),
                    None if event.type == "DELETE" else event.kv.value,
                    revision,
                )
                for event in events
            ]

    # Leases.

    async def grant(self, ttl_ms: int) -> int:
        """Grants a lease in whole seconds; etcd rounds up to its minimum (two by default)."""
        assert ttl_ms > 0
        request = {"TTL": -(-ttl_ms // 1000)}
        answer = await self._channel.change("/v3/lease/grant", request, messages.LeaseAnswer)
        return answer.lease

    async def renew(self, lease: int) -> bool:
        answer = await self._channel.read(
            "/v3/lease/keepalive", {"ID": lease}, messages.KeepAlive, is_urgent=True
        )
        if answer.result is None:
            raise ConnectionError(f"etcd did not renew a lease: {answer.error}")
        return answer.result.ttl_s > 0

    async def revoke(self, lease: int) -> None:
        try:
            await self._channel.change("/v3/lease/revoke", {"ID": lease}, messages.RevokeAnswer)
        except EtcdRefused as refused:
            if refused.code != messages.CODE_NOT_FOUND:
                raise

    async def close(self) -> None:
        """Ends the watches and fails the requests in progress."""
        self._channel.close()

    # Keys and revisions.

    def _key(self, key: str) -> bytes:
        assert key.startswith("/"), "without '/' it could be a key of another prefix"
        return self._prefix + key.encode()

    def _name(self, key: bytes) -> str:
        return key[len(self._prefix) :].decode()

    def _entry(self, found: messages.KeyValue) -> StoreEntry:
        return StoreEntry(self._name(found.key), found.value, found.mod_revision, found.lease)

    def _see(self, header: messages.Header, floor: int) -> None:
        """Checks revision and cluster; `floor` is the newest known revision before the request."""
        if header.revision < floor:
            raise Corrupt(
                f"etcd is at revision {header.revision} and was at {floor}: it lost data or was "
                "restored from an older backup. Repair etcd, then restart the nodes."
            )
        self._cluster_id = self._cluster_id or header.cluster_id
        if header.cluster_id != self._cluster_id:
            raise Corrupt(
                f"etcd cluster {header.cluster_id:x} responds instead of {self._cluster_id:x}: the "
                "endpoints belong to different clusters, or etcd was replaced. Configure the "
                "endpoints of one cluster."
            )
        self._revision = max(self._revision, header.revision)


def _check_history(changes: Sequence[Change], delivered: Sequence[Change], revision: int) -> None:
    """Raises Corrupt for changes at known revisions that a watch has not delivered.

    Those that it has delivered may be missing: a compaction removes deletions.
    """
    for change in changes:
        if change not in delivered:
            raise Corrupt(
                f"etcd shows another change of {change.key} at revision {change.revision} than "
                f"before, when it was at {revision}: it lost data or was restored from an older "
                "backup. Repair etcd, then restart the nodes."
            )


def _end_of(prefix: bytes) -> bytes:
    """First key after all that begin with `prefix`: UTF-8 never ends with 0xFF."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _code_of(reason: str) -> int:
    """Code of a cancelled watch, whose reason is only a text."""
    if "auth token" in reason:
        return messages.CODE_UNAUTHENTICATED
    if "permission denied" in reason:
        return messages.CODE_PERMISSION_DENIED
    return messages.CODE_UNKNOWN
