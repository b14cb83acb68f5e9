"""`SqliteStore` beyond the contract: restarts, and disk errors."""

import asyncio
import errno
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.base.errors import Corrupt
from penstock.base.ports import Delete, Put, StoreEntry, WatchLost
from penstock.runtime.sqlite_store import SqliteStore
from tests.run_with import in_new_loop, run_with


def test_restart_keeps_keys_revisions_and_leases(tmp_path: Path) -> None:
    async def first() -> int:
        store = await SqliteStore.open(f"{tmp_path}/m.db")
        lease = await store.grant(60_000)
        ended = await store.grant(60_000)
        await store.commit([], [Put("a", b"1"), Put("b", b"2", lease)])
        await store.commit([], [Put("a", b"3"), Put("c", b"")])
        await store.commit([], [Delete("c")])
        await store.revoke(ended)
        await store.close()
        return lease

    async def second(lease: int) -> None:
        store = await SqliteStore.open(f"{tmp_path}/m.db")
        assert await store.range("") == (
            3,
            [StoreEntry("a", b"3", 2), StoreEntry("b", b"2", 1, lease)],
        )
        assert await store.renew(lease)
        assert await store.grant(1000) == lease + 2, "a lease's number is never given again"
        with pytest.raises(WatchLost):
            await anext(aiter(store.watch("", 2)))
        assert await store.commit([], [Put("d", b"")]) == 4
        assert [c.key for c in await anext(aiter(store.watch("", 3)))] == ["d"]
        await store.revoke(lease)
        assert await store.get("b") is None
        await store.close()

    asyncio.run(second(asyncio.run(first())))


def test_lease_that_is_not_renewed_expires_after_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        store = await SqliteStore.open(f"{tmp_path}/m.db")
        lease = await store.grant(50)
        await store.commit([], [Put("a", b"", lease)])
        await store.close()

    async def second() -> None:
        store = await SqliteStore.open(f"{tmp_path}/m.db")
        assert await store.get("a") is not None
        while await store.get("a") is not None:
            await asyncio.sleep(0.01)
        await store.close()

    asyncio.run(first())
    asyncio.run(second())


@run_with(in_new_loop)
async def test_store_is_readable_by_its_owner_only(*, tmp_path: Path) -> None:
    path = tmp_path / "m.db"

    def rights() -> set[int]:
        return {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}

    store = await SqliteStore.open(str(path))
    await store.commit([], [Put("/users/ann", b"secret")])
    assert len(list(tmp_path.iterdir())) > 1, "there is a log beside the file"
    assert rights() == {0o600}
    await store.close()
    path.chmod(0o644)  # As it was made once.
    await (await SqliteStore.open(str(path))).close()
    assert rights() == {0o600}


@run_with(in_new_loop)
async def test_second_process_on_the_same_file_does_not_start(*, tmp_path: Path) -> None:
    store = await SqliteStore.open(f"{tmp_path}/m.db")
    with pytest.raises(OSError, match="locked") as caught:
        await SqliteStore.open(f"{tmp_path}/m.db")
    assert caught.value.errno == errno.EBUSY
    await store.close()


@run_with(in_new_loop)
async def test_file_is_set_up_to_survive_a_power_cut(*, tmp_path: Path) -> None:
    store = await SqliteStore.open(f"{tmp_path}/m.db")
    ask = store._database.execute
    assert (await store._thread.run(ask, "PRAGMA journal_mode")).fetchone()[0] == "wal"
    assert (await store._thread.run(ask, "PRAGMA synchronous")).fetchone()[0] == 2
    await store.close()


def test_file_of_another_format_is_corrupt_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "m.db").write_bytes(b"something else" * 1000)
    with pytest.raises(Corrupt):
        asyncio.run(_open(f"{tmp_path}/m.db"))
    assert (tmp_path / "m.db").read_bytes() == b"something else" * 1000


def test_newer_format_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(f"{tmp_path}/m.db")
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(OSError, match="format 99"):
        asyncio.run(_open(f"{tmp_path}/m.db"))


@run_with(in_new_loop)
async def test_full_disk_fails_the_change_and_not_the_store(*, tmp_path: Path) -> None:
    store = await SqliteStore.open(f"{tmp_path}/m.db")
    await store.commit([], [Put("a", b"1")])
    ask = store._database.execute
    pages = (await store._thread.run(ask, "PRAGMA page_count")).fetchone()[0]
    await store._thread.run(ask, f"PRAGMA max_page_count={pages}")
    with pytest.raises(ConnectionError, match="full") as caught:  # As the port promises.
        await store.commit([], [Put("b", b"x" * 100_000)])
    assert caught.value.errno == errno.ENOSPC
    assert await store.range("") == (1, [StoreEntry("a", b"1", 1)])
    await store._thread.run(ask, f"PRAGMA max_page_count={pages + 1000}")
    assert await store.commit([], [Put("b", b"x" * 100_000)]) == 2
    await store.close()


@run_with(in_new_loop)
async def test_error_of_the_disk_fails_every_later_change(*, tmp_path: Path) -> None:
    store = await SqliteStore.open(f"{tmp_path}/m.db")
    await store.commit([], [Put("a", b"1")])
    await store._thread.run(store._database.execute, "DROP TABLE entries")
    for _ in range(2):
        with pytest.raises(OSError, match="no such table"):
            await store.commit([], [Put("a", b"2")])
    with pytest.raises(OSError, match="no such table"):
        await store.grant(1000)
    assert await store.get("a") == StoreEntry("a", b"1", 1)
    await store.close()


async def _open(path: str) -> None:
    await SqliteStore.open(path)


def _fill(path: str) -> None:
    async def fill() -> None:
        store = await SqliteStore.open(path)
        await store.commit([], [Put("/topics/a", b"the first value"), Put("/topics/b", b"")])
        await store.commit([], [Put("/topics/c", b"deleted")])
        await store.commit([], [Delete("/topics/c"), Put("/topics/d", b"another value")])
        await store.close()

    asyncio.run(fill())


def _change(path: str, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()


def _read(path: str) -> dict[str, bytes]:
    async def read() -> dict[str, bytes]:
        store = await SqliteStore.open(path)
        entries = (await store.range(""))[1]
        await store.close()
        return {entry.key: entry.value for entry in entries}

    return asyncio.run(read())


def test_flipped_bit_in_a_value_is_found_at_start(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    _fill(str(path))
    data = bytearray(path.read_bytes())
    at = data.index(b"the first value")
    for bit in range(8):
        damaged = bytearray(data)
        damaged[at + 3] ^= 1 << bit
        path.write_bytes(damaged)
        with pytest.raises(Corrupt, match="'/topics/a'"):
            _read(str(path))
    path.write_bytes(data)
    assert _read(str(path))["/topics/a"] == b"the first value"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET key = '/topics/A' WHERE key = '/topics/a'",
        "UPDATE entries SET revision = 2 WHERE key = '/topics/a'",
        "UPDATE entries SET revision = 0 WHERE key = '/topics/a'",
        "UPDATE entries SET revision = 4 WHERE key = '/topics/d'",
        "UPDATE entries SET lease = 1 WHERE key = '/topics/a'",
        "UPDATE entries SET value = 'the first value' WHERE key = '/topics/a'",
        "UPDATE entries SET key = CAST(x'ff' AS TEXT) WHERE key = '/topics/a'",
        "DELETE FROM entries WHERE key = '/topics/a'",
        "INSERT INTO entries VALUES ('/topics/e', x'05', 3, 0)",
        "DELETE FROM checksums WHERE key = '/topics/a'",
        "UPDATE checksums SET crc = crc + 1 WHERE key = '/topics/a'",
        "UPDATE counters SET value = 2 WHERE name = 'revision'",
    ],
)
def test_damaged_row_is_found_at_start(tmp_path: Path, change: str) -> None:
    path = str(tmp_path / "m.db")
    _fill(path)
    _change(path, change)
    for _ in range(2):
        with pytest.raises(Corrupt, match=r"damaged|UTF-8"):
            _read(path)


def test_changes_by_a_release_without_checksums_are_accepted_once(tmp_path: Path) -> None:
    path = str(tmp_path / "m.db")
    _fill(path)
    _change(path, "UPDATE counters SET value = 4 WHERE name = 'revision'")
    _change(path, "REPLACE INTO entries VALUES ('/topics/b', x'01', 4, 0)")
    _change(path, "REPLACE INTO entries VALUES ('/topics/e', x'02', 4, 0)")
    _change(path, "DELETE FROM entries WHERE key = '/topics/d'")
    assert sorted(_read(path)) == ["/topics/a", "/topics/b", "/topics/e"]
    _change(path, "UPDATE entries SET value = x'03' WHERE key = '/topics/e'")
    with pytest.raises(Corrupt, match="'/topics/e'"):
        _read(path)


def test_damage_beside_changes_of_an_earlier_release_is_found(tmp_path: Path) -> None:
    path = str(tmp_path / "m.db")
    _fill(path)
    _change(path, "UPDATE counters SET value = 4 WHERE name = 'revision'")
    _change(path, "UPDATE entries SET value = x'04' WHERE key = '/topics/a'")
    with pytest.raises(Corrupt, match="'/topics/a'"):
        _read(path)
