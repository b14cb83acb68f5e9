"""Files of a data directory: those of a log, plain and encrypted, and those of the node."""

import asyncio
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from penstock.base.ids import TopicId
from penstock.base.ports import Delete, Put
from penstock.cluster.metadata import known_metadata
from penstock.cluster.metadata.known_metadata import KnownKey, KnownMetadata
from penstock.cluster.metadata.metadata_rebuild import LogReport, NodeReport
from penstock.cluster.replication.high_watermark_checkpoint import (
    FORMAT,
    FORMAT_KEY,
    HighWatermarkFile,
)
from penstock.cluster.storage.log_directories import directory_of
from penstock.log import expected_batches
from penstock.log.encryption import key_file
from penstock.log.log import CleanState, Log
from penstock.node import data_directory
from penstock.node.data_directory import Meta
from penstock.runtime.sqlite_store import SqliteStore
from penstock.security.keyring import Keyring
from simulation.disk import SimDisk
from tests.golden.book import Book, Sample
from tests.golden.filling import full, minimal
from tests.unit.log.building import (
    NOW_MS,
    SMALL,
    append,
    batch,
    flush,
    make_disk,
    make_keyring,
    marker,
    read_all,
)

if TYPE_CHECKING:
    from penstock.log.config import LogConfig

DATA: Final = "/data"
TOPIC_ID: Final = TopicId(bytes(range(16)))
NAME: Final = f"{directory_of('orders', TOPIC_ID)}/0"
KNOWN: Final = KnownMetadata(
    "cluster", 7, "again", 2_000, {"/topics/a": KnownKey(3, msgspec.Raw(b"{}"))}
)
META: Final = Meta(1, "cluster", 3, "directory", is_shared=True)
VALUES: Final = [b"a" * 300, b"b" * 300, b"lost", b"c" * 300, b"d", b"e", b"open"]
LIFE: Final = 4


def _samples() -> Iterator[Sample]:
    for kind, ring in (("plain", None), ("encrypted", make_keyring())):
        disk = make_disk()
        if ring is None:
            data_directory.claim(disk, DATA, META)
        path = _make_directories(disk)
        state = _write_log(disk, path, ring)
        if ring is None:
            _write_node(disk, state)
        for file in disk.files():
            data = disk.open(file).read(0, disk.size(file))
            yield Sample(f"{kind}: {file.lstrip('/').removeprefix('data/')}", data)
        if ring is not None:
            yield Sample(f"{kind}: clean state", msgspec.json.encode(state))
    for size, report in (("full", full(NodeReport)), ("minimal", minimal(NodeReport))):
        data = msgspec.json.encode(report)
        yield Sample(
            f"report of a node, {size}", data, report, partial(msgspec.json.decode, type=NodeReport)
        )
    yield Sample("embedded store", _dump_store().encode())
    yield Sample("embedded store without checksums", _dump_store(is_checked=False).encode())


def _make_directories(disk: SimDisk) -> str:
    path = f"{DATA}/logs"
    disk.mkdir(path)
    for part in NAME.split("/"):
        path = f"{path}/{part}"
        disk.mkdir(path)
    return path


def _open(disk: SimDisk, path: str, ring: Keyring | None, clean: CleanState | None = None) -> Log:
    config: LogConfig = replace(SMALL, encrypted=ring is not None)
    return Log.open(disk, path, config, NOW_MS, clean, ring)


def _write_log(disk: SimDisk, path: str, ring: Keyring | None) -> CleanState:
    """A log with three segments, two epochs, producers, an aborted and an open transaction."""
    log = _open(disk, path, ring)
    log.begin_epoch(1)
    append(log, batch([VALUES[0], VALUES[1]], key=b"key", producer=(70, 2, 0)))
    append(log, batch([VALUES[2]], producer=(71, 0, 0), transactional=True))
    append(log, marker(71, 0, committed=False, coordinator_epoch=6))
    flush(log)
    log.begin_epoch(5)
    append(log, batch([VALUES[3]], producer=(70, 2, 2), timestamp=NOW_MS + 9), epoch=5)
    log.roll()
    append(log, batch([VALUES[4], VALUES[5]], timestamp=NOW_MS + 7), epoch=5)
    append(log, batch([VALUES[6]], producer=(72, 1, 0), transactional=True), epoch=5)
    expected_batches.write_gaps(disk, path, 2)
    flush(log)
    state = log.close()
    assert state is not None
    return state


def _write_node(disk: SimDisk, state: CleanState) -> None:
    data_directory.leave_clean_states(disk, DATA, {NAME: state}, LIFE)
    data_directory.write_life(disk, DATA, LIFE)
    HighWatermarkFile(disk, DATA).write({FORMAT_KEY: FORMAT, NAME: 7})
    known_metadata.write(disk, DATA, KNOWN)


def _dump_store(*, is_checked: bool = True) -> str:
    """The embedded store's tables as SQL, after some changes; or as a release before the checksums
    left them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metadata.db"
        asyncio.run(_fill_store(str(path)))
        with closing(sqlite3.connect(path)) as database:
            if not is_checked:
                database.execute("DROP TABLE checksums")
                database.execute("DELETE FROM counters WHERE name = 'checked'")
            version = database.execute("PRAGMA user_version").fetchone()[0]
            return "\n".join([f"-- user_version {version}", *database.iterdump()])


async def _fill_store(path: str) -> None:
    store = await SqliteStore.open(path)
    try:
        lease = await store.grant(9_000)
        await store.commit((), [Put("/brokers/1", b'{"node_id":1}', lease), Put("/a", b"\0")])
        await store.commit((), [Delete("/a"), Put("/b", b"b")])
    finally:
        await store.close()


BOOK: Final = Book("files", _samples)


def test_bytes_are_unchanged() -> None:
    BOOK.check_all()


def _restored(kind: str) -> SimDisk:
    """A disk with the stored files."""
    disk = make_disk()
    _make_directories(disk)
    prefix = f"{kind}: "
    for name, data in BOOK.stored().items():
        if name.startswith(prefix) and name != f"{prefix}clean state":
            file = disk.open(f"{DATA}/{name.removeprefix(prefix)}", create=True)
            file.append((data,))
            file.sync()
            file.close()
    return disk


@pytest.mark.parametrize("kind", ["plain", "encrypted"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_stored_log_opens(kind: str, is_clean: bool) -> None:
    disk = _restored(kind)
    ring = make_keyring() if kind == "encrypted" else None
    states = data_directory.take_clean_states(disk, DATA, LIFE) if kind == "plain" else None
    state = states[NAME] if states is not None else None
    if kind == "encrypted":
        data = BOOK.stored()["encrypted: clean state"]
        state = msgspec.json.decode(data, type=CleanState)
    path = f"{DATA}/logs/{NAME}"
    log = _open(disk, path, ring, state if is_clean else None)
    assert log.offline is None
    assert [one.value for one in read_all(log) if one.value in VALUES] == VALUES
    assert (log.start_offset, log.end_offset, log.gaps_end) == (0, 8, 2)
    assert (log.epochs.epochs, log.epochs.starts) == ([1, 5], [0, 4])
    assert sorted(log.producers.by_id) == [70, 71, 72]
    assert log.producers.first_open_offset == 7
    assert [txn.producer_id for txn in log.aborted(0, 8)] == [71]
    assert (key_file.peek(disk, path) is not None) == (kind == "encrypted")


def test_stored_files_of_a_node_are_read() -> None:
    disk = _restored("plain")
    assert data_directory.read(disk, DATA, 3, is_shared=True) == META
    assert data_directory.read_life(disk, DATA) == LIFE
    assert HighWatermarkFile(disk, DATA).read() == {FORMAT_KEY: FORMAT, NAME: 7}
    assert known_metadata.read(disk, DATA) == KNOWN
    states = data_directory.take_clean_states(disk, DATA, LIFE)
    assert states is not None
    assert states[NAME].end_offset == 8


def test_node_report_is_compressed_json() -> None:
    """Reports go into the store in pieces of this."""
    data = BOOK.stored()["report of a node, full"]
    packed = zlib.decompress(zlib.compress(data))
    assert msgspec.json.decode(packed, type=NodeReport).logs == (full(NodeReport)).logs
    assert isinstance(full(NodeReport).logs[0], LogReport)


@pytest.mark.parametrize("name", ["embedded store", "embedded store without checksums"])
def test_stored_database_opens(name: str) -> None:
    text = BOOK.stored()[name].decode()

    async def read() -> dict[str, bytes]:
        store = await SqliteStore.open(str(path))
        try:
            return {entry.key: entry.value for entry in (await store.range("/"))[1]}
        finally:
            await store.close()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metadata.db"
        with closing(sqlite3.connect(path)) as database:
            database.executescript(text)
            database.execute("PRAGMA user_version = 1")
            database.commit()
        assert asyncio.run(read()) == {"/brokers/1": b'{"node_id":1}', "/b": b"b"}
