"""`LocalDisk`: descriptors, appends that are all or nothing, reads that do not wait."""

import errno
import gc
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.runtime import disk as disk_module
from penstock.runtime.disk import Descriptor, LocalDisk


@pytest.fixture
def disk() -> LocalDisk:
    return LocalDisk(open_files_max=4)


@contextmanager
def small_files() -> Iterator[None]:
    """Writes beyond 1000 bytes of a file fail, as on a full disk: short first, then an error.

    Only for as long as it takes: the run may be writing its own report to a file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def drop_pages(path: str) -> None:
    """Has the page cache forget a synced file."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def test_appended_buffers_are_read_back_at_the_returned_position(
    disk: LocalDisk, tmp_path: Path
) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    assert file.append([b"one", memoryview(b"two")]) == 0
    assert file.append([bytearray(b"three")]) == 6
    assert file.size() == 11
    assert file.read(3, 100) == b"twothree"
    assert file.read(11, 5) == b""
    assert (tmp_path / "a").read_bytes() == b"onetwothree"


def test_more_buffers_than_one_system_call_takes_are_all_written(
    disk: LocalDisk, tmp_path: Path
) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"x"])
    assert file.append([b"%04d" % i for i in range(3000)]) == 1
    assert file.read(1, 20000) == b"".join(b"%04d" % i for i in range(3000))


def test_short_write_is_undone_before_the_error_is_raised(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"x" * 900])
    with small_files(), pytest.raises(OSError, match="File too large"):
        file.append([b"y" * 50, b"z" * 200])
    assert file.size() == 900
    assert os.stat(f"{tmp_path}/a").st_size == 900
    assert file.append([b"w" * 100]) == 900


def test_opening_a_missing_file_fails_and_creating_keeps_content(
    disk: LocalDisk, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/a")
    (tmp_path / "a").write_bytes(b"old")
    file = disk.open(f"{tmp_path}/a", create=True)
    assert file.append([b"new"]) == 3
    assert disk.open(f"{tmp_path}/a").read(0, 10) == b"oldnew"


def test_cached_read_returns_bytes_just_written(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    data = os.urandom(3 * disk_module.SCRATCH_BYTES // 2)
    file.append([data])
    cached = file.read_cached(10, 100)
    assert cached in (data[10:110], None), "None where the file system cannot say"
    if cached is not None:
        assert file.read_cached(0, 10 * len(data)) == data
        assert file.read_cached(len(data) - 5, 100) == data[-5:]
        assert file.read_cached(len(data), 5) == b""


def test_cached_read_returns_none_for_uncached_bytes(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([os.urandom(1 << 20)])
    file.sync()
    drop_pages(f"{tmp_path}/a")
    assert file.read_cached(0, 1 << 20) is None
    assert len(file.read(0, 1 << 20)) == 1 << 20


def test_recently_probed_pages_are_sent_without_another_probe(
    disk: LocalDisk, tmp_path: Path
) -> None:
    """A stretch leaves in many pieces: each would look at all that is left of it."""
    path, size = f"{tmp_path}/a", 1 << 20
    file = disk.open(path, create=True)
    file.append([os.urandom(size)])
    file.sync()
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        first = file.send_to(near.fileno(), 0, size)
        assert first, "a file system that can neither say nor send has nothing to show here"
        far.recv(size)
        drop_pages(path)
        assert file.send_to(near.fileno(), first, size - first)
        far.recv(size)
        drop_pages(path)
        time.sleep(disk_module.PROBE_SECONDS)
        assert file.send_to(near.fileno(), first, size - first) is None


def test_range_beyond_the_end_of_file_is_not_at_hand(disk: LocalDisk, tmp_path: Path) -> None:
    """A caller that promised too many bytes must find out before the first one is sent."""
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([bytes(100_000)])
    assert file.is_at_hand(0, 100_000)
    assert not file.is_at_hand(0, 100_001)
    assert not file.is_at_hand(200_000, 10)


def test_truncation_moves_the_end(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"0123456789"])
    file.truncate(4)
    assert file.append([b"x"]) == 4
    assert file.read(0, 100) == b"0123x"


def test_clean_files_beyond_the_bound_are_closed_and_come_back(
    disk: LocalDisk, tmp_path: Path
) -> None:
    files = []
    for i in range(10):
        file = disk.open(f"{tmp_path}/{i}", create=True)
        file.append([b"%d" % i])
        file.sync()
        files.append(file)
    assert disk.open_files == 4
    assert [file.read(0, 9) for file in files] == [b"%d" % i for i in range(10)]
    assert disk.open_files == 4


def test_dirty_file_is_never_closed_by_the_bound(disk: LocalDisk, tmp_path: Path) -> None:
    files = [disk.open(f"{tmp_path}/{i}", create=True) for i in range(10)]
    for file in files:
        file.append([b"x"])
    clean = [disk.open(f"{tmp_path}/{i}-clean", create=True) for i in range(10)]
    for file in clean:
        file.read(0, 1)
    assert all(file._descriptor is not None for file in files)
    disk.sync_all(str(tmp_path))
    for file in clean:
        file.read(0, 1)
    assert disk.open_files <= 11
    assert [file.read(0, 1) for file in files] == [b"x"] * 10


def test_descriptor_in_use_by_another_thread_outlives_its_file(
    disk: LocalDisk, tmp_path: Path
) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"data"])
    file.sync()
    held: Descriptor | None = file._descriptor
    assert held is not None
    file.close()
    assert os.pread(held.fd, 4, 0) == b"data"
    fd = held.fd
    del held
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(OSError, match="closed"):
        file.read(0, 1)


def test_readers_in_threads_survive_a_storm_of_evictions(tmp_path: Path) -> None:
    disk = LocalDisk(open_files_max=2)
    files = []
    for i in range(20):
        file = disk.open(f"{tmp_path}/{i}", create=True)
        file.append([bytes([i]) * 1000])
        file.sync()
        files.append(file)
    wrong: list[object] = []

    def read(step: int) -> None:
        try:
            for n in range(2000):
                i = n * step % 20
                if files[i].read(0, 1000) != bytes([i]) * 1000:
                    wrong.append(i)
        except OSError as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(step,)) for step in (1, 3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("evicted", [False, True])
def test_file_follows_renames_of_itself_and_of_its_directory(tmp_path: Path, evicted: bool) -> None:
    disk = LocalDisk(open_files_max=1)
    disk.mkdir(f"{tmp_path}/t")
    file = disk.open(f"{tmp_path}/t/a", create=True)
    file.append([b"mine"])
    file.sync()
    if evicted:
        for name in ("b", "c"):
            disk.open(f"{tmp_path}/{name}", create=True)
        assert file._descriptor is None
    disk.rename(f"{tmp_path}/t/a", f"{tmp_path}/t/b")
    disk.rename(f"{tmp_path}/t", f"{tmp_path}/u")
    assert file.path == f"{tmp_path}/u/b"
    assert file.read(0, 10) == b"mine"


def test_rename_looks_only_at_files_of_its_directory(disk: LocalDisk, tmp_path: Path) -> None:
    opened = []
    for name in ("t", "u", "v/w"):
        disk.mkdir(f"{tmp_path}/{name}")
        opened.append(disk.open(f"{tmp_path}/{name}/a", create=True))
    assert list(disk._siblings(f"{tmp_path}/t/b")) == opened[:1]
    disk.rename(f"{tmp_path}/v", f"{tmp_path}/x")
    assert list(disk._siblings(f"{tmp_path}/x/w/b")) == opened[2:]
    for file in opened:
        file.close()
    assert not disk._files


@pytest.mark.parametrize("how", ["unlinked", "replaced"])
def test_file_stays_readable_after_its_name_is_gone(tmp_path: Path, how: str) -> None:
    disk = LocalDisk(open_files_max=1)
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"mine"])
    file.sync()
    others = [disk.open(f"{tmp_path}/{name}", create=True) for name in ("b", "c")]
    assert file._descriptor is None
    if how == "unlinked":
        disk.unlink(f"{tmp_path}/a")
    else:
        disk.rename(f"{tmp_path}/b", f"{tmp_path}/a")
    for other in others:
        other.read(0, 1)
    assert file.read(0, 10) == b"mine"
    file.close()


def test_file_never_counts_as_synced_after_a_failed_sync(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"x"])
    good = file._descriptor
    reading, writing = os.pipe()  # A pipe cannot be synced.
    file._descriptor = Descriptor(writing)
    with pytest.raises(OSError, match="Invalid argument"):
        file.sync()
    file._descriptor = good
    with pytest.raises(OSError, match="earlier sync") as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    os.close(reading)


def test_directories(disk: LocalDisk, tmp_path: Path) -> None:
    assert disk.listdir(f"{tmp_path}/none") == []
    disk.mkdir(f"{tmp_path}/a/b")
    disk.mkdir(f"{tmp_path}/a/b")
    for name in ("z", "y", "x"):
        disk.open(f"{tmp_path}/a/{name}", create=True).close()
    assert disk.listdir(f"{tmp_path}/a") == ["b", "x", "y", "z"]
    disk.rmdir(f"{tmp_path}/a/b")
    disk.sync_dir(f"{tmp_path}/a")
    assert not disk.exists(f"{tmp_path}/a/b")
    assert disk.size(f"{tmp_path}/a/x") == 0
    assert disk.free_bytes(f"{tmp_path}") > 0


def test_rewriting_leaves_the_bytes_and_makes_the_file_dirty(
    disk: LocalDisk, tmp_path: Path
) -> None:
    file = disk.open(f"{tmp_path}/file", create=True)
    file.append((b"0123456789",))
    file.sync()
    assert file._writes == file._synced
    file.rewrite(3, b"345")
    assert file._writes != file._synced
    file.sync()
    assert (file.size(), file.read(0, 20)) == (10, b"0123456789")
    with pytest.raises(AssertionError, match="never grows"):
        file.rewrite(8, b"890")
    file.close()
