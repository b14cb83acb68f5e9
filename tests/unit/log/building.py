"""Small logs on a simulated disk, for the tests of `penstock.log`."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

import crc32c
import pytest

from penstock.log.cleanup import compaction
from penstock.log.cleanup.compaction import Compacted
from penstock.log.config import LogConfig
from penstock.log.flusher import sync
from penstock.log.log import Appended, CleanState, Log, Removal
from penstock.security.keyring import Keyring, kek_of
from penstock.wire.control_batches import encode_marker
from penstock.wire.records import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    CRC_AT,
    Record,
    batches,
    check_stored,
    decode,
    encode,
    seal,
)
from simulation.disk import SimDisk
from simulation.random import SimRandom

PATH = "/data/topic-0"
NOW_MS = 1_000_000
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def make_disk(seed: int = 0) -> SimDisk:
    """A disk with a data directory that survives a power cut, as the node makes it.

    Without a journal: of names, too, only what was synced is sure to be there.
    """
    disk = SimDisk(seed, journaled=False)
    disk.mkdir("/data")
    disk.sync_dir("/")
    return disk


class Mode:
    """Mode of every log of a test, set by the fixture `in_both_modes`."""

    keyring: Keyring | None = None


def make_keyring(seed: int = 0, keys: int = 1) -> Keyring:
    random = SimRandom(seed)
    return Keyring([kek_of(random.random_bytes(32)) for _ in range(keys)], random)


@pytest.fixture(params=["plain", "encrypted"])
def in_both_modes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs a test with logs as they are, and once more with encrypted ones."""
    Mode.keyring = make_keyring() if request.param == "encrypted" else None
    yield
    Mode.keyring = None


def open_log(
    disk: SimDisk,
    config: LogConfig = SMALL,
    clean: CleanState | None = None,
    now_ms: int = NOW_MS,
) -> Log:
    if Mode.keyring is not None:
        config = replace(config, encrypted=True)
    return Log.open(disk, PATH, config, now_ms, clean, Mode.keyring)


def disk_of(log: Log) -> SimDisk:
    assert isinstance(log.disk, SimDisk)
    return log.disk


def batch(
    values: Sequence[bytes | None] = (b"value",),
    *,
    key: bytes | None = None,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    codec: int = 0,
) -> memoryview:
    """One batch; `producer` is id, epoch and base sequence."""
    producer_id, producer_epoch, base_sequence = producer
    all_keys = keys if keys is not None else [key] * len(values)
    return memoryview(
        encode(
            [
                Record(timestamp=timestamp + at, key=one_key, value=value)
                for at, (one_key, value) in enumerate(zip(all_keys, values, strict=True))
            ],
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
    )


def marker(
    producer_id: int, epoch: int, *, committed: bool, coordinator_epoch: int = 0
) -> memoryview:
    return memoryview(
        encode_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=NOW_MS,
        )
    )


def append(
    log: Log, made: memoryview, epoch: int = 1, now_ms: int = NOW_MS, version: int = 0
) -> Appended:
    return log.append(made, check_stored(made), epoch, now_ms, transaction_version=version)


def fill(log: Log, count: int, *, value: bytes = b"v" * 100, timestamp: int = NOW_MS) -> None:
    """`count` batches of one record each, whose values start with their offset."""
    for _ in range(count):
        made = batch([b"%d:" % log.end_offset + value], timestamp=timestamp)
        append(log, made, epoch=max(1, log.epochs.latest))


def flush(log: Log) -> None:
    """One group commit of one log, here and now."""
    started = log.begin_flush()
    sync(log.disk, [started])
    log.mark_durable(started)


def read_from(
    log: Log, offset: int, bytes_max: int = 500, limit: int | None = None
) -> list[Record]:
    """Records that a consumer fetches from `offset` to the end."""
    found: list[Record] = []
    limit = log.end_offset if limit is None else limit
    while True:
        span = log.locate(offset, bytes_max, limit)
        if span is None:
            return found
        data = span.read_cached()
        if data is None:
            data = span.read()
        view = memoryview(data)
        whole = list(batches(view))
        assert whole, "a fetch that makes no progress"
        assert whole[0][1].last_offset >= offset, "a batch before the one asked for"
        for position, header in whole:
            check_stored(view[position : position + header.size_bytes])
            found += [one for one in decode(view[position:]) if one.offset >= offset]
            offset = header.next_offset


def read_all(log: Log) -> list[Record]:
    return read_from(log, log.start_offset)


def unreadable(codec: int) -> memoryview:
    """A batch of three whose checksum is right, and whose records cannot be decoded."""
    junk = seal(
        bytearray(BATCH_OVERHEAD) + b"\xff" * 40,
        count=3,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
    )
    struct.pack_into(">h", junk, ATTRIBUTES_AT, codec)
    struct.pack_into(">I", junk, CRC_AT, crc32c.crc32c(memoryview(junk)[ATTRIBUTES_AT:]))
    return memoryview(junk)


def offsets(records: Sequence[Record]) -> list[int]:
    return [record.offset for record in records]


def swap_in(log: Log, compacted: Compacted, now_ms: int = NOW_MS) -> list[Removal]:
    """Moves and adopts a finished compaction at once, as upkeep does later."""
    if not compaction.is_current(log, compacted):
        compaction.discard(compacted, log.disk)
        return []
    paths = compaction.move(log.disk, log.path, compacted, log.gaps_end)
    return compaction.adopt(log, compacted, paths, now_ms)
