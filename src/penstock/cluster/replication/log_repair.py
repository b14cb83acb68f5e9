"""Repairs of a follower's log that wait for the disk.

Truncates what the leader does not have, starts over where the leader's log begins later, persists a
new epoch before its first batch, and replaces a damaged log by an empty one.

Invariants:
- a log is truncated by leader epoch, never to the high watermark: to the end of the last epoch that
  both logs have (KIP-595), repeatedly until they agree;
- each step runs on workers, under `Partition.hold`, with `is_under_repair` set, and only while the
  partition still follows: no other code appends to or reads from the log meanwhile;
- a step that fails half way takes the log offline: the content of its files is no longer known;
- no log is truncated, started over or copied anew below what is known to be committed (`known_end`,
  high watermark), unless an unclean election allows it (`elections.may_go_back`): a leader without
  such records has lost them, and this copy may be the last (ADR 0031).

Elsewhere: the choice of the step, and handling its failure (`replica_follower`).
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ports import Disk, WallClock, Workers
from penstock.cluster.controller.leader_elections import may_go_back
from penstock.cluster.replication.partition import Partition
from penstock.log.config import LogConfig
from penstock.log.encryption import key_file
from penstock.log.encryption.log_encryption import NO_KEY
from penstock.log.log import Log
from penstock.security.keyring import Keyring
from penstock.wire.records import BATCH_OVERHEAD, BatchHeader, check_stored, read_header

log = logging.getLogger("penstock.replication")

DAMAGED = ".damaged"
"""Suffix of a damaged log's directory while it is replaced."""


@dataclass(slots=True)
class CopyCounters:
    """Replication counters of this node since it started."""

    fetches: int = 0
    bytes: int = 0
    batches_refused: int = 0
    truncations: int = 0
    resets: int = 0
    restored: int = 0
    truncations_refused: int = 0
    """Truncations refused because a leader lacked committed records."""


class LeaderLacksRecords(Refused):
    """The leader lacks committed records that this log holds, so it is not followed."""


class LogRepair:
    """Repairs of one partition's log, for one leader in one leader epoch."""

    __slots__ = (
        "_clock",
        "_copied",
        "_is_over",
        "_leader",
        "_leader_epoch",
        "_partition",
        "_workers",
    )

    def __init__(
        self,
        partition: Partition,
        leader: int,
        workers: Workers,
        clock: WallClock,
        copied: CopyCounters,
        is_over: Callable[[], bool],
    ) -> None:
        """`is_over` is True once the partition has another role or leader."""
        self._partition = partition
        self._leader = leader
        self._leader_epoch = partition.record.leader_epoch
        self._workers = workers
        self._clock = clock
        self._copied = copied
        self._is_over = is_over

    @property
    def has_empty_epoch(self) -> bool:
        """True if the log's last epoch has no batch: this node led without writing."""
        held = self._partition.log
        return bool(held.epochs.starts) and held.epochs.starts[-1] >= held.end_offset

    async def forget_empty_epoch(self) -> None:
        if self.has_empty_epoch and not self._is_over():
            await self._truncate_to(self._partition.log.end_offset)

    async def truncate(self, epoch: int, leader_end: int) -> None:
        """Truncates the log to where the leader's last epoch not above ours ends."""
        held = self._partition.log
        _, own_end = held.epoch_end(epoch)
        target = min(held.end_offset, leader_end if own_end < 0 else min(own_end, leader_end))
        log.info(
            "%s-%d is truncated from %d to %d: node %d ended epoch %d at %d",
            *self._name,
            held.end_offset,
            target,
            self._leader,
            epoch,
            leader_end,
        )
        self._check_kept(target)
        self._copied.truncations += 1
        await self._truncate_to(target)

    def _check_kept(self, end_offset: int) -> None:
        """Raises LeaderLacksRecords if the log would lose committed records by ending there."""
        partition = self._partition
        known = max(partition.known_end, partition.high_watermark)
        if end_offset >= known:
            return
        last_epoch = partition.log.epochs.latest if partition.log.offline is None else -1
        if not may_go_back(partition.record, partition.node_id, last_epoch):
            self._copied.truncations_refused += 1
            raise LeaderLacksRecords(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"leader {self._leader} has no records from offset {end_offset} on, but this "
                f"replica holds committed records up to {known}. Nothing is removed; let another "
                "replica lead, or run an unclean election",
            )

    async def _truncate_to(self, offset: int) -> None:
        held, now_ms = self._partition.log, self._clock.now_ms()
        await self._change(lambda: held.truncate_to(offset, now_ms), lowest=offset)

    async def start_over(self, offset: int) -> None:
        """Empties the log and starts it at the leader's start offset, beyond its end."""
        held = self._partition.log
        log.warning(
            "%s-%d starts over at %d: the log of leader %d begins there, and this one ends at %d",
            *self._name,
            offset,
            self._leader,
            held.end_offset,
        )
        self._check_kept(offset)
        self._copied.resets += 1
        await self._change(lambda: held.start_over(offset), lowest=offset)

    async def copy(self, view: memoryview, uncommitted_from: int | None) -> bool:
        """Copies batches that need something persisted first: a new epoch, a gap.

        `uncommitted_from`: see `Partition.copied`.
        True if the partition still follows afterwards.
        """
        partition, held = self._partition, self._partition.log
        while len(view) >= BATCH_OVERHEAD:
            header = read_header(view)
            if not BATCH_OVERHEAD <= header.size_bytes <= len(view):
                break
            self._check(header, view[: header.size_bytes])
            await self._change(*self._preparations(held, header), lowest=header.base_offset)
            if self._is_over():
                return False
            taken = held.append_replica(view, self._clock.now_ms(), waits=False)
            assert taken, "an expected batch is appended"
            self._copied.bytes += taken
            partition.copied(uncommitted_from)
            view = view[taken:]
        return True

    def _check(self, header: BatchHeader, batch: memoryview) -> None:
        """Checks a batch before anything is persisted for it: the CRC omits offset and epoch."""
        check_stored(batch)
        latest = self._partition.log.epochs.latest
        if not latest <= header.leader_epoch <= self._leader_epoch:
            self._copied.batches_refused += 1
            raise Refused(
                ErrorCode.CORRUPT_MESSAGE,
                f"a batch of epoch {header.leader_epoch} after epoch {latest}, from node "
                f"{self._leader} which leads in epoch {self._leader_epoch}",
            )

    def _preparations(self, held: Log, header: BatchHeader) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = [lambda: held.expect(header)]
        if header.base_offset < held.end_offset == held.start_offset <= header.last_offset:
            # The leader's log begins within this batch, so this log will, too.
            steps.insert(0, lambda: held.start_over(header.base_offset))
        return steps

    async def restore(self, leader_end: Callable[[], Awaitable[int]]) -> None:
        """Replaces an unusable log by an empty one, if the leader has what this log is known to
        have held."""
        partition, held = self._partition, self._partition.log
        if partition.known_end > 0:
            self._check_kept(await leader_end())
        log.warning("%s-%d is offline and is copied anew: %s", *self._name, held.offline)
        async with partition.hold():
            if self._is_over():
                return
            partition.is_under_repair = True
            try:
                fresh = await self._workers.run(
                    rebuild,
                    held.disk,
                    held.path,
                    held.config,
                    self._clock.now_ms(),
                    held.cipher.keyring,
                )
                await partition.lower_known_end(0)
                partition.adopt(fresh)
                self._copied.restored += 1
            except (OSError, Corrupt) as error:
                raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            finally:
                partition.is_under_repair = False
                partition.repair_ended()

    async def _change(self, *steps: Callable[[], None], lowest: int) -> None:
        """Runs steps that change the log and its files; a failed step takes the log offline.
        `lowest` is the lowest offset at which the log may end meanwhile."""
        partition = self._partition
        async with partition.hold():
            if self._is_over():
                return
            partition.is_under_repair = True
            try:
                await partition.lower_known_end(lowest)
                for step in steps:
                    await self._workers.run(step)
            except (OSError, Corrupt) as error:
                partition.log.fail(f"it could not be brought in line with the leader: {error}")
                raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            finally:
                partition.is_under_repair = False
                partition.repair_ended()

    @property
    def _name(self) -> tuple[str, int]:
        return self._partition.topic, self._partition.index


def rebuild(
    disk: Disk, path: str, config: LogConfig, now_ms: int, keyring: Keyring | None = None
) -> Log:
    """Replaces a damaged log by an empty one, durable on return. Blocks: for Workers.

    Only for a replica outside ISR and ELR: the rest of its files is of no use then, and is removed.
    The old directory is renamed first, so a crash leaves either the damaged log or a new one, never
    a mixture. What a crash leaves of the old one goes with the next repair, or with the topic.

    Raises Corrupt, with nothing changed, if a new log could not be used either.
    """
    if config.encrypted and keyring is None:
        raise Corrupt(NO_KEY)
    parent, _, _ = path.rpartition("/")
    aside = path + DAMAGED
    _remove(disk, aside)
    if disk.exists(path):
        disk.rename(path, aside)
        disk.sync_dir(parent)
    fresh = Log.open(disk, path, config, now_ms, keyring=keyring)
    disk.sync_dir(parent)
    _remove(disk, aside)
    return fresh


def _remove(disk: Disk, path: str) -> None:
    if not disk.exists(path):
        return
    key_file.shred(disk, path)
    for name in disk.listdir(path):
        disk.unlink(f"{path}/{name}")
    disk.rmdir(path)
