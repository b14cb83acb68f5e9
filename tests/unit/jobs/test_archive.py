"""Archives on disk: names, ranges, merging, and recovery after a crash."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.jobs.archive import (
    MERGED,
    OPEN_FILES_MAX,
    Archive,
    ArchiveFile,
    RangeWriter,
    merge,
    parse,
    plan_merges,
    repair,
)

DAY_MS = 86_400_000
NOON_MS = 1_790_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2


def batch(offsets: range, moments: list[int]) -> pa.RecordBatch:
    count = len(offsets)
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(moments, pa.timestamp("ms", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "key": pa.array([b"k"] * count),
            "value": pa.array([b"%d" % n for n in offsets]),
            "headers": pa.array([None] * count, pa.list_(pa.struct([("key", pa.string())]))),
        }
    )


def write(archive: Archive, start: int, end: int, moments: list[int] | None = None) -> None:
    writer = RangeWriter(archive, "t", 0, (start, end))
    writer.add(batch(range(start, end), moments or [NOON_MS] * (end - start)), "attempt")
    writer.finish()


def values(archive: Archive) -> list[int]:
    return [
        int(value)
        for file in archive.files()
        for value in pq.read_table(file.path, partitioning=None)["value"].to_pylist()
    ]


def test_archive_path_is_parsed() -> None:
    file = ArchiveFile("orders", "2026-11-16", 3, 1_000, 2_000, 0)
    path = f"/data/{file.folder}/{file.name}"
    assert parse(path, 7) == file._replace(path=path, size=7)
    second = file._replace(part=2)
    assert parse(f"x/{second.folder}/{second.name}") is not None
    for other in ("/data/topic=a/readme.parquet", "/a/b/c.parquet", f"{path}.crc", "p1.parquet"):
        assert parse(other) is None


def test_rewritten_range_is_archived_once(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    write(archive, 0, 10)
    write(archive, 0, 10)
    assert values(archive) == list(range(10))


def test_unfinished_range_is_invisible(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    writer = RangeWriter(archive, "t", 0, (0, 10))
    writer.add(batch(range(5), [NOON_MS] * 5), "attempt")
    assert archive.files() == []
    writer.add(batch(range(5, 10), [NOON_MS] * 5), "attempt")
    assert [file.end for file in writer.finish()] == [10]
    assert values(archive) == list(range(10))


def test_range_with_more_days_than_open_files_is_complete(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    days = OPEN_FILES_MAX + 5
    moments = [NOON_MS - n % days * DAY_MS for n in range(2 * days)]
    writer = RangeWriter(archive, "t", 0, (0, 2 * days))
    for n in range(2 * days):
        writer.add(batch(range(n, n + 1), moments[n : n + 1]), "attempt")
    writer.finish()
    assert sorted(values(archive)) == list(range(2 * days))
    assert len({file.date for file in archive.files()}) == days


def test_adjacent_small_files_are_merged(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    for start in range(0, 50, 10):
        write(archive, start, start + 10)
    files = archive.files()
    size = files[0].size
    runs = plan_merges(files, 2 * size + size // 2)
    assert [[file.start for file in run] for run in runs] == [[0, 10], [20, 30]]
    assert plan_merges(files, size) == []
    for run in runs:
        merge(archive, run)
    assert [(file.start, file.end) for file in archive.files()] == [(0, 20), (20, 40), (40, 50)]
    assert values(archive) == list(range(50))
    assert not list(tmp_path.rglob("_*"))


def test_interrupted_merge_is_finished(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    for start in (0, 10, 20):
        write(archive, start, start + 10)
    first, second, _ = archive.files()
    # State after a merge of the first two has died before their deletion.
    whole = pa.concat_tables([pq.read_table(f.path, partitioning=None) for f in (first, second)])
    pq.write_table(whole, Path(first.path).with_name(MERGED + first._replace(end=second.end).name))
    assert values(archive) == list(range(30))
    assert repair(archive, ["t"]) == 1
    assert [(file.start, file.end) for file in archive.files()] == [(0, 20), (20, 30)]
    # A straggler writes an already merged part again.
    Path(second.path).write_bytes(Path(archive.files()[1].path).read_bytes())
    assert repair(archive, ["t"]) == 1
    assert values(archive) == list(range(30))
    assert repair(archive, ["t"]) == 0


def test_files_of_killed_tasks_are_deleted_for_the_given_topics(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    write(archive, 0, 10)
    file = archive.files()[0]
    for prefix in ("_writing-7-", "_merging-"):
        Path(file.path).with_name(prefix + file._replace(start=10, end=20).name).write_bytes(b"x")
    assert repair(archive, ["other"]) == 0
    assert repair(archive, ["t"]) == 2
    assert [str(path) for path in tmp_path.rglob("*.parquet")] == [file.path]


def test_table_of_another_format_is_known(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    assert archive.table_format() is None
    (tmp_path / "_delta_log").mkdir()
    assert archive.table_format() == "Delta"
