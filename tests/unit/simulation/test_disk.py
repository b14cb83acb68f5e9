"""`SimDisk`: the port while the power is on, and the state after a power cut."""

import errno
import random
from collections.abc import Callable

import pytest

from simulation.disk import Fault, PowerCut, SimDisk

SEEDS = 400


def outcomes(prepare: Callable[[SimDisk], None], look: Callable[[SimDisk], object]) -> set[object]:
    """All results of `look` after power cuts with many seeds."""
    seen = set()
    for seed in range(SEEDS):
        disk = SimDisk(seed)
        prepare(disk)
        seen.add(look(disk.crashed(random.Random(seed))))
    return seen


def content(path: str) -> Callable[[SimDisk], bytes | None]:
    def look(disk: SimDisk) -> bytes | None:
        return disk.open(path).read(0, 1 << 20) if disk.exists(path) else None

    return look


def make(disk: SimDisk, path: str, data: bytes = b"", *, sync: bool = True) -> None:
    file = disk.open(path, create=True)
    if data:
        file.append([data])
    if sync:
        file.sync()
        disk.sync_dir(path.rpartition("/")[0])


def test_disk_behaves_like_a_directory_tree() -> None:
    disk = SimDisk()
    disk.mkdir("a/b")
    file = disk.open("a/b/f", create=True)
    assert file.append([b"one", memoryview(b"two")]) == 0
    assert file.append([b"!"]) == 6
    assert (file.read(2, 3), file.read(6, 9), file.size()) == (b"etw", b"!", 7)
    file.truncate(3)
    disk.rename("a", "z")
    assert file.path == "/z/b/f"
    assert disk.listdir("/z/b") == ["f"]
    assert disk.listdir("nowhere") == []
    with pytest.raises(OSError, match="not empty"):
        disk.rmdir("z")
    disk.unlink("z/b/f")
    assert file.read(0, 9) == b"one", "an open file outlives its name"
    assert not disk.exists("z/b/f")
    with pytest.raises(FileNotFoundError):
        disk.open("z/b/f")
    with pytest.raises(FileNotFoundError):
        disk.open("none/f", create=True)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, 1)


def test_synced_data_in_a_synced_directory_survives() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.mkdir("d")
        disk.sync_dir("")
        make(disk, "d/f", b"kept")
        disk.open("d/f").append([b"x" * 2000])

    seen = outcomes(prepare, content("d/f"))
    assert all(isinstance(data, bytes) and data.startswith(b"kept") for data in seen)
    assert b"kept" in seen
    assert b"kept" + b"x" * 2000 in seen


def test_unsynced_data_is_torn_at_sectors_or_zero_filled() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk, "f", b"a" * 700)
        disk.open("f").append([b"b" * 1500])

    seen = {data for data in outcomes(prepare, content("f")) if isinstance(data, bytes)}
    assert b"a" * 700 + b"b" * 324 in seen, "a prefix that ends at a sector"
    assert b"a" * 700 + bytes(1500) in seen, "the size without the data"
    holes = [data for data in seen if data[700:].strip(b"\0") and b"\0" in data[700:-1]]
    assert any(data.rstrip(b"\0").endswith(b"b") for data in holes), "a gap before later data"
    assert all(data.startswith(b"a" * 700) for data in seen)


def test_unsynced_truncation_may_be_lost_despite_a_later_write() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk, "f", b"a" * 512 + b"old" * 400)
        file = disk.open("f")
        file.truncate(512)
        file.append([b"n" * 512])

    seen = outcomes(prepare, content("f"))
    assert b"a" * 512 + b"n" * 512 in seen
    assert any(
        isinstance(data, bytes) and data[512:1024] == b"n" * 512 and len(data) > 1024
        for data in seen
    )


def test_created_file_survives_only_with_its_directory_synced() -> None:
    def prepare(disk: SimDisk) -> None:
        file = disk.open("f", create=True)
        file.append([b"data"])
        file.sync()

    assert outcomes(prepare, content("f")) == {None, b"data"}


def test_rename_is_atomic() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk, "f", b"old")
        make(disk, "f.tmp", b"new")
        disk.rename("f.tmp", "f")

    seen = outcomes(prepare, lambda disk: (content("f")(disk), content("f.tmp")(disk)))
    assert seen == {(b"old", b"new"), (b"new", None)}


def test_changes_of_one_entry_keep_their_order() -> None:
    def prepare(disk: SimDisk) -> None:
        make(disk, "f", b"first")
        disk.unlink("f")
        file = disk.open("f", create=True)
        file.append([b"second"])
        file.sync()

    assert outcomes(prepare, content("f")) == {b"first", None, b"second"}


def test_sync_all_makes_everything_durable() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.mkdir("a/b")
        make(disk, "a/b/f", b"data", sync=False)
        disk.sync_all("a")

    assert outcomes(prepare, content("a/b/f")) == {b"data"}


def test_failed_sync_loses_pages_and_then_succeeds() -> None:
    lost = 0
    for seed in range(SEEDS):
        disk = SimDisk(seed)
        make(disk, "f", b"old")
        file = disk.open("f")
        file.append([b"new" * 400])
        disk.inject(Fault("sync"))
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()
        assert file.read(0, 6) == b"oldnew", "the page cache still shows it"
        lost += content("f")(disk.crashed(random.Random(seed))) != b"old" + b"new" * 400
    assert lost > SEEDS // 2


def test_full_disk_refuses_appends_and_keeps_its_data() -> None:
    disk = SimDisk(capacity_bytes=100)
    file = disk.open("f", create=True)
    file.append([b"x" * 90])
    with pytest.raises(OSError, match="No space") as caught:
        file.append([b"y" * 20])
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 90
    assert disk.free_bytes("") == 10
    disk.unlink("f")
    assert disk.free_bytes("") == 100


def test_fault_affects_only_its_operations() -> None:
    disk = SimDisk()
    file, other = disk.open("a", create=True), disk.open("b", create=True)
    disk.inject(Fault("append", errno.ENOSPC, path="a", skip=1, times=2))
    file.append([b"1"])
    for _ in range(2):
        other.append([b"1"])
        with pytest.raises(OSError, match="No space"):
            file.append([b"2"])
    assert file.append([b"3"]) == 1


def test_bit_rot_is_visible_to_reads() -> None:
    disk = SimDisk()
    make(disk, "f", bytes(2000))
    disk.flip_bit("f", 8 * 100 + 3)
    file = disk.open("f")
    assert file.read(100, 1) == b"\x08"
    disk.damage("f", 700)
    with pytest.raises(OSError, match="Input/output"):
        file.read(0, 600)
    assert file.read(1024, 10) == bytes(10)
    after = disk.crashed(random.Random(1)).open("f")
    assert after.read(100, 1) == b"\x08"
    with pytest.raises(OSError, match="Input/output"):
        after.read(600, 1)


def test_cold_read_misses_the_cache() -> None:
    disk = SimDisk(1, cold_ratio=0.5)
    make(disk, "f", b"data")
    answers = {disk.open("f").read_cached(0, 4) for _ in range(50)}
    assert answers == {None, b"data"}


def test_power_can_be_cut_at_every_operation() -> None:
    def work(disk: SimDisk) -> None:
        disk.mkdir("d")
        disk.sync_dir("")
        make(disk, "d/f", b"data")
        disk.rename("d/f", "d/g")
        disk.sync_dir("d")

    whole = SimDisk()
    work(whole)
    assert whole.operations == 8
    for at in range(1, whole.operations + 1):
        disk = SimDisk()
        disk.crash_after(at)
        with pytest.raises(PowerCut):
            work(disk)
        assert disk.operations == at
        with pytest.raises(PowerCut):
            disk.exists("d")
        disk.crash(random.Random(at))
        assert disk.exists("d") or at <= 2


def test_files_opened_before_a_crash_are_dead() -> None:
    disk = SimDisk()
    make(disk, "f", b"data")
    file = disk.open("f")
    disk.crash(random.Random(0))
    with pytest.raises(PowerCut):
        file.read(0, 1)
    assert disk.open("f").read(0, 4) == b"data"


def test_equal_seeds_give_equal_disks_after_a_crash() -> None:
    def once(seed: int) -> list[tuple[str, bytes | None]]:
        disk = SimDisk(seed)
        for i in range(20):
            make(disk, f"f{i % 7}", bytes([i]) * (i * 97), sync=i % 3 == 0)
        after = disk.crashed(random.Random(seed))
        return [(path, content(path)(after)) for path in after.files()]

    assert once(5) == once(5)
    assert len({str(once(seed)) for seed in range(20)}) > 10


def test_power_cut_is_reported_once_and_stops_the_disk() -> None:
    disk, reported = SimDisk(), []
    disk.on_cut = lambda: reported.append(True)
    file = disk.open("f", create=True)
    disk.crash_after(1)
    with pytest.raises(PowerCut):
        file.append([b"x"])
    disk.cut()
    assert reported == [True]
    with pytest.raises(PowerCut):
        disk.exists("f")
    disk.crash(random.Random(1))
    disk.open("f", create=True).append([b"y"])


def test_end_of_a_process_keeps_unsynced_data() -> None:
    disk = SimDisk()
    file = disk.open("f", create=True)
    file.append([b"x"])
    disk.crash_after(1)
    disk.abandon()
    with pytest.raises(PowerCut):
        file.append([b"late"])
    assert disk.open("f").read(0, 9) == b"x"
    disk.crash_after(1)
    disk.cancel_crash()
    disk.open("f").append([b"y"])


def test_removed_paths_stay_removed_until_a_copy_is_restored() -> None:
    disk = SimDisk(0)
    disk.mkdir("a/b")
    for path in ("a/b/one", "a/two"):
        disk.open(path, create=True).append([b"12345"])
    copy = disk.copy()
    disk.open("a/two").append([b"678"])
    disk.shorten("a/two", 2)
    disk.remove_path("a/b")
    for seed in range(5):
        disk.crash(random.Random(seed))
        assert not disk.exists("a/b")
    for _ in range(2):
        disk.restore_copy(copy)
        disk.crash(random.Random(1))
        assert disk.files() == ["/a/b/one", "/a/two"]
        assert disk.open("a/two").read(0, 9) == b"12345"
        assert disk.used_bytes == 10
        disk.open("a/two").append([b"x"])
