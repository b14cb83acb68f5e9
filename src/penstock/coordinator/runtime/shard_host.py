"""All shards of one kind on this node: one for each partition of an internal topic that it leads.

Owns the runtimes, the assignment of state machines to them, and loading: one partition after
another, in the background, while callers get COORDINATOR_LOAD_IN_PROGRESS. A partition that is lost
or unreadable has a runtime without a machine (COORDINATOR_NOT_AVAILABLE, unless the host sets
another code). Elsewhere: the decisions of a machine and their execution (`shard_runtime`).

A runtime belongs to one partition in one leader epoch: when either ends, it is retired. A machine
is activated when everything it was loaded from is committed: records that a new leader found in its
log may yet be lost, and must not be revealed before.

Lookup of the internal partition that coordinates a group or a transactional id. Kafka's rule, so
that tools which compute it themselves get the same: Java's `String.hashCode`, its sign removed,
modulo the number of partitions.

Replay of an internal partition from start to end, for a machine to apply. Reading, checking and
decoding run on workers, one chunk ahead of the loop; applying runs on the loop in slices, so that
other requests are served while a large partition loads. Control batches are skipped: they have no
meaning for a machine.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, cast

from msgspec import MsgspecError

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ports import Random, Workers
from penstock.base.state_machine import Decision, Record, Token
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.replication.peer_connections import PeerConnections
from penstock.coordinator.runtime.shard_runtime import Answer, Effect, S, ShardRuntime
from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.log.log import Log
from penstock.log.read_span import ReadSpan
from penstock.wire.records import Column, batches, decode, is_control

APPLIED_AT_ONCE = 1_000
"""Records between two yields to the loop."""
EMPTY_READS_MAX = 100
"""Empty reads in a row that count as damage; the log may be truncated or compacted meanwhile."""


async def replay(
    log: Log,
    workers: Workers,
    chunk_bytes: int,
    until_offset: int,
    apply: Callable[[bytes, bytes | None], None],
) -> int:
    """Applies every record below `until_offset`, in order, and returns how many there were.

    Raises Corrupt, Refused or OSError where the log cannot be read.
    """
    count = 0
    following = _read_on(log, workers, chunk_bytes, log.start_offset, until_offset)
    records, offset = await following
    while records or offset < until_offset:
        ahead = asyncio.ensure_future(_read_on(log, workers, chunk_bytes, offset, until_offset))
        try:
            await _apply_all(records, apply)
            count += len(records)
            records, offset = await ahead
        finally:
            ahead.cancel()
    return count


async def _apply_all(
    records: Sequence[Record], apply: Callable[[bytes, bytes | None], None]
) -> None:
    for start in range(0, len(records), APPLIED_AT_ONCE):
        for key, value in records[start : start + APPLIED_AT_ONCE]:
            apply(key, value)
        await asyncio.sleep(0)


async def _read_on(
    log: Log, workers: Workers, chunk_bytes: int, offset: int, until_offset: int
) -> tuple[list[Record], int]:
    """Returns the records of the next chunk, and the offset after it."""
    for _ in range(EMPTY_READS_MAX):
        offset = max(offset, log.start_offset)
        if offset >= until_offset:
            return [], until_offset
        span = log.locate(offset, chunk_bytes, until_offset)
        if span is None:
            return [], until_offset
        records, following = await workers.run(_decode_all, span)
        if following > offset:
            return records, following
    raise Corrupt(f"{log.path}: nothing can be read at offset {offset}")


def _decode_all(span: ReadSpan) -> tuple[list[Record], int]:
    """Decodes a span. Blocks; runs on a worker."""
    view = memoryview(span.read())
    found: list[Record] = []
    following = -1
    for position, header in batches(view):
        following = header.next_offset
        if is_control(header.attributes):
            continue
        columns = decode(view[position:], columns=Column.KEYS | Column.VALUES)
        found += [
            (key, value)
            for key, value in zip(columns.keys(), columns.values(), strict=True)
            if key is not None
        ]
    return found, following


REMEMBERED_MAX = 20_000
"""Keys with a cached hash: every heartbeat looks up its group's."""


@lru_cache(maxsize=REMEMBERED_MAX)
def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 code units, wrapping at 32 bits, signed."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def shard_of(key: str, count: int) -> int:
    value = java_hash(key)
    # The smallest integer has no positive counterpart; Kafka uses zero for it.
    return 0 if value == -(1 << 31) else abs(value) % count


log = logging.getLogger("penstock.coordinator")

RELOAD_SECONDS = 1.0
"""Minimum delay until a discarded machine is loaded again: the disk may be full."""


@dataclass(frozen=True, slots=True)
class HostContext:
    """Parts of the node that every host needs."""

    partitions: Partitions
    watcher: MetadataWatcher
    workers: Workers
    time: SteadyTime
    peers: PeerConnections
    random: Random


def no_effects(runtime: ShardRuntime[Any]) -> Effect | None:
    return None


def nothing_to_tell(runtime: ShardRuntime[Any]) -> None:
    pass


class ShardHost(Generic[S]):
    """Runtimes of one internal topic, by partition."""

    def __init__(
        self,
        topic: str,
        around: HostContext,
        make: Callable[[], S],
        *,
        codec: int,
        chunk_bytes: int,
        effects: Callable[[ShardRuntime[S]], Effect | None] = no_effects,
        activated: Callable[[ShardRuntime[S]], None] = nothing_to_tell,
        unreadable: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE,
        holds: str = "the coordinator's state",
    ) -> None:
        """`unreadable` is the code for calls to an unreadable partition, `holds` describes its
        content in messages."""
        self.topic = topic
        self.runtimes: dict[int, ShardRuntime[S]] = {}
        self._around = around
        self._make = make
        self._codec = codec
        self._chunk_bytes = chunk_bytes
        self._effects = effects
        self._activated = activated
        self._unreadable = unreadable
        self._holds = holds
        self._to_load: deque[ShardRuntime[S]] = deque()
        self._news = asyncio.Event()

    # -- calls ------------------------------------------------------------------------------

    def index_of(self, key: str) -> int:
        """Returns the partition that coordinates `key`; refuses while the topic does not exist."""
        topic = self._around.watcher.image.topics.get(self.topic)
        if topic is None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return shard_of(key, len(topic.partitions))

    def runtime_of(self, key: str) -> ShardRuntime[S]:
        return self.runtime(self.index_of(key))

    def runtime(self, index: int) -> ShardRuntime[S]:
        runtime = self.runtimes.get(index)
        if runtime is None:
            raise Refused(ErrorCode.NOT_COORDINATOR)
        return runtime

    def ask(self, key: str, decide: Callable[[S, Token, int], Decision]) -> "asyncio.Future[Any]":
        """Returns the pending reply; a cancelled wait drops the call."""
        return ask(self.runtime_of(key), decide)

    def active(self) -> Iterator[tuple[ShardRuntime[S], S]]:
        """Yields the runtimes that have a machine, with it, in the order of their partitions."""
        for _, runtime in sorted(self.runtimes.items()):
            if runtime.shard is not None:
                yield runtime, runtime.shard

    @property
    def loading_count(self) -> int:
        """Number of runtimes that wait for their machine."""
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return sum(s.shard is None and s.refusal is code for s in self.runtimes.values())

    @property
    def is_loading(self) -> bool:
        return self.loading_count > 0

    # -- following the partitions -----------------------------------------------------------

    def follow(self) -> None:
        """Creates and retires runtimes according to the partitions that are open here now."""
        partitions = self._around.partitions
        topic = self._around.watcher.image.topics.get(self.topic)
        count = len(topic.partitions) if topic is not None else 0
        for index, runtime in list(self.runtimes.items()):
            partition = partitions.get(self.topic, index)
            if partition is not runtime.partition or partition.leader_epoch != runtime.leader_epoch:
                del self.runtimes[index]
                runtime.retire()
        for index in range(count):
            partition = partitions.get(self.topic, index)
            if partition is None or index in self.runtimes:
                continue
            runtime = ShardRuntime(
                partition, self._around.time, self._codec, self._load_later, self._effects
            )
            self.runtimes[index] = runtime
            if partition.log.offline is None and not partition.log.size_bytes:
                self._await_commit(runtime, self._make(), partition.log.end_offset)
            else:
                self._load(runtime)

    def close(self) -> None:
        """Retires all runtimes because the node stops: no call is answered, and no timer fires."""
        for runtime in self.runtimes.values():
            runtime.retire()
        self.runtimes.clear()
        self._to_load.clear()

    def _load_later(self, runtime: ShardRuntime[S]) -> None:
        asyncio.get_running_loop().call_later(RELOAD_SECONDS, self._load, runtime)

    def _load(self, runtime: ShardRuntime[S]) -> None:
        self._to_load.append(runtime)
        self._news.set()

    async def run(self) -> None:
        """Loads machines as partitions open, until cancelled."""
        while True:
            while self._to_load:
                await self._fill(self._to_load.popleft())
            self._news.clear()
            await self._news.wait()

    def _await_commit(self, runtime: ShardRuntime[S], shard: S, until_offset: int) -> None:
        """Activates a machine that was loaded up to an offset, once that is committed."""
        row = (runtime, shard, until_offset)
        if runtime.partition.when_committed(until_offset, self, row):
            self.committed(row, ErrorCode.NONE)

    def committed(self, row: object, code: ErrorCode) -> None:
        """Called when the records that a machine was loaded from are committed, or cannot be."""
        loaded = cast("tuple[ShardRuntime[S], S, int]", row)
        runtime, shard, until_offset = loaded
        partition = runtime.partition
        if self.runtimes.get(partition.index) is not runtime or runtime.shard is not None:
            return
        if code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            loop = asyncio.get_running_loop()
            loop.call_later(RELOAD_SECONDS, self._await_commit, runtime, shard, until_offset)
        elif code is not ErrorCode.NONE or partition.log.end_offset != until_offset:
            self._load_later(runtime)
        else:
            runtime.activated(shard)
            self._activated(runtime)

    async def _fill(self, runtime: ShardRuntime[S]) -> None:
        partition = runtime.partition
        if self.runtimes.get(partition.index) is not runtime or runtime.shard is not None:
            return
        shard = self._make()
        around = self._around
        started = asyncio.get_running_loop().time()
        try:
            partition.log.require_online()  # A lost log looks empty.
            until_offset = partition.log.end_offset
            count = await replay(
                partition.log, around.workers, self._chunk_bytes, until_offset, shard.apply
            )
        except (Corrupt, Refused, OSError, MsgspecError) as error:
            log.error("%s-%d cannot be loaded: %s", self.topic, partition.index, error)
            if isinstance(error, Corrupt | OSError):
                around.partitions.read_failed(partition, error)
            why = (
                f"{self._holds} cannot be read from {self.topic}-{partition.index}: see the log "
                f"of node {around.peers.node_id} for the cause and what to do"
            )
            runtime.offline(Refused(self._unreadable, why))
            return
        if self.runtimes.get(partition.index) is not runtime:
            return
        seconds = asyncio.get_running_loop().time() - started
        log.info("%s-%d loaded: %d records in %.3f s", self.topic, partition.index, count, seconds)
        self._await_commit(runtime, shard, until_offset)


def ask(
    runtime: ShardRuntime[S], decide: Callable[[S, Token, int], Decision]
) -> "asyncio.Future[Any]":
    """Returns a call's pending reply; raises Refused where `ShardRuntime.call` would, or in the
    future."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(reply: Any) -> None:
        if future.done():
            return
        if isinstance(reply, Refused):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    token: Token = runtime.call(decide, answer)

    def forget(done: "asyncio.Future[Any]") -> None:
        if done.cancelled():
            runtime.dropped(token)

    future.add_done_callback(forget)
    return future


__all__ = ["Answer", "HostContext", "ShardHost", "ShardRuntime", "ask"]
