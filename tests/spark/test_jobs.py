"""The ready-to-use jobs on real topics, compared with results computed in plain Python."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.cli.main import run as penstock
from penstock.client.producer.partitioner import partition_for_key
from penstock.jobs import archive
from penstock.jobs.archive import Archive, archive_topics, merge_small, read_archive
from penstock.jobs.audit import audit
from penstock.jobs.cdc import ApplyResult, apply_changes, read_table
from penstock.jobs.event_sourcing import rebuild
from penstock.jobs.inputs import JobInput, parse_input
from penstock.jobs.replay import RecordFilter, replay_archive
from penstock.jobs.skew import find_skew, report_of
from penstock.pipelines.lakehouse import count_rows
from penstock.spark.option_values import OptionError
from penstock.wire.records import Record
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
NOON_MS = 1_790_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2


def days(count: int, first: int = 0) -> list[Record]:
    """Records of two days with distinct values and headers."""
    return [
        Record(0, NOON_MS + n % 2 * DAY_MS, b"k%d" % (n % 5), b"%d" % n, (("n", b"%d" % n),))
        for n in range(first, first + count)
    ]


def test_archive_is_complete_and_replayable(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    root = str(tmp_path / "archive")
    again = f"{topic}-again"
    topics.create(topic, 2)
    topics.create(again, 2)
    options: dict[str, Any] = {
        "cluster": {"brokers": topics.bootstrap},
        "topics": [topic],
        "root": root,
    }

    topics.fill(topic, days(300))
    done = archive_topics(spark, **options, rows_per_file=60, merged_bytes=0)
    assert done.rows == 300
    files = Archive(root).files(topic)
    assert len(files) == done.files > 6
    assert {file.date for file in files} == {"2026-09-21", "2026-09-22"}

    # Archives only new records; after the merge there is one file per partition and day.
    topics.fill(topic, days(100, first=300))
    done = archive_topics(spark, **options)
    assert done.rows == 100
    assert done.merged > 0
    assert archive_topics(spark, **options).rows == 0
    files = Archive(root).files(topic)
    assert len(files) == len({file[:3] for file in files})

    # Readers other than Spark see the same records.
    table = pq.read_table(f"{root}/topic={topic}")
    assert sorted(int(value) for value in table["value"].to_pylist()) == list(range(400))

    here, there = JobInput(topic), parse_input(f"archive:{root}:{topic}")
    found = audit(spark, cluster={"brokers": topics.bootstrap}, left=here, right=there)
    assert found.is_clean, found
    assert found.left_records == found.right_records == 400

    count = replay_archive(
        spark,
        cluster={"brokers": topics.bootstrap},
        root=root,
        topic=topic,
        to=again,
        partitions=2,
        choice=RecordFilter(until_ms=NOON_MS + DAY_MS, where="key in ('k1', 'k2')"),
        name=topic,
    )
    original = [m for m in topics.read(topic) if m.key in (b"k1", b"k2") and m.timestamp == NOON_MS]
    copies = topics.read(again)
    assert count == len(copies) == len(original)
    # Keys, headers, timestamps, partitions and order are unchanged.
    assert [m[1:2] + m[3:7] for m in copies] == [m[1:2] + m[3:7] for m in original]
    # A repeated replay with the same name writes nothing.
    replay_archive(
        spark,
        cluster={"brokers": topics.bootstrap},
        root=root,
        topic=topic,
        to=again,
        partitions=2,
        choice=RecordFilter(until_ms=NOON_MS + DAY_MS, where="key in ('k1', 'k2')"),
        name=topic,
    )
    assert topics.read(again) == copies


def test_audit_finds_every_kind_of_difference(spark: Any, topics: Topics, topic: str) -> None:
    out = f"{topic}-out"
    topics.create(topic, 1)
    topics.create(out, 1)
    topics.fill(topic, [Record(0, -1, b"k", b"%d" % n) for n in range(20)])
    # 3 is lost, 5 is duplicated, 99 is foreign, 11 precedes 10.
    order = [0, 1, 2, 4, 5, 5, 6, 7, 8, 9, 11, 10, *range(12, 20), 99]
    topics.fill(out, [Record(0, -1, b"k", b"%d" % n) for n in order])
    found = audit(
        spark,
        cluster={"brokers": topics.bootstrap},
        left=JobInput(topic),
        right=JobInput(out),
        identity="value",
    )
    assert (found.lost, found.doubled, found.foreign, found.out_of_order) == (1, 1, 1, 1)
    assert not found.is_clean
    assert found.samples == {
        "lost": ["3"],
        "doubled": ["5"],
        "foreign": ["99"],
        "out_of_order": ["10"],
    }


def test_skew_finds_the_hot_key_and_recommends_salting(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 4)
    keys = [b"hot" if n % 2 else b"k%d" % n for n in range(2_000)]
    topics.fill(topic, [Record(0, -1, key, b"x") for key in keys])
    found = find_skew(spark, cluster={"brokers": topics.bootstrap}, topic=topic, partitions=4)
    assert found.records == 2_000
    assert [one.key for one in found.hot] == [b"hot"]
    assert found.hot[0].partition == partition_for_key(b"hot", 4)
    assert found.imbalance > 2 > 1.6 > found.imbalance_salted
    for name in ("skew.html", "skew.md"):
        report_of(found).write(str(tmp_path / name))
    assert "<svg" in (tmp_path / "skew.html").read_text()
    assert (tmp_path / "skew-partitions.svg").read_text().startswith("<?xml")
    with pytest.raises(OptionError, match=r"\.html or \.md"):
        report_of(found).write(str(tmp_path / "skew.pdf"))


def test_change_events_are_applied_to_a_table(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 1)
    path = str(tmp_path / "table")

    def change(op: str, key: int, name: str | None) -> Record:
        row = None if name is None else {"id": key, "name": name}
        value = json.dumps({"op": op, "before": None, "after": row}).encode()
        return Record(0, -1, b"%d" % key, value)

    done: list[ApplyResult] = []

    def run(end: int) -> dict[int, str]:
        applied = apply_changes(
            spark,
            cluster={"brokers": topics.bootstrap},
            topic=topic,
            schema="id int, name string",
            path=path,
            ends={"0": end},
        )
        done.append(applied)
        return {row["id"]: row["name"] for row in read_table(spark, path).collect()}

    topics.fill(topic, [change("c", 1, "ann"), change("c", 2, "bob"), change("u", 1, "anna")])
    assert run(3) == {1: "anna", 2: "bob"}
    row = Record(0, -1, b"3", b'{"id": 3, "name": "cyd"}')
    topics.fill(topic, [change("d", 2, None), row, Record(0, -1, b"1", None)])
    assert run(6) == {3: "cyd"}
    assert run(6) == {3: "cyd"}

    # Events wrapped with their schema, as Kafka Connect writes by default, and invalid events.
    wrapped = {
        "schema": {"type": "struct"},
        "payload": json.loads(change("c", 4, "dan").value or b""),
    }
    plain = {"schema": {"type": "struct"}, "payload": {"id": 5, "name": "eve"}}
    bad = [b'{"id": "x", "name": 1', b"nonsense", b'{"id": "three", "name": "cy"}']
    topics.fill(
        topic,
        [
            Record(0, -1, b"4", json.dumps(wrapped).encode()),
            Record(0, -1, b"5", json.dumps(plain).encode()),
            *(Record(0, -1, b"3", value) for value in bad),
            Record(0, -1, None, b'{"id": 6, "name": "fay"}'),
            Record(0, -1, b"7", json.dumps({"op": "u", "after": None}).encode()),
        ],
    )
    assert run(13) == {3: "cyd", 4: "dan", 5: "eve"}
    assert (done[-1].events, done[-1].left_out) == (7, 5)
    assert done[-1].samples == ["0/8", "0/9", "0/10"]


def test_state_is_rebuilt_as_of_a_time(spark: Any, topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    events = [
        Record(0, NOON_MS + n, b"a%d" % (n % 3), json.dumps({"amount": n}).encode())
        for n in range(30)
    ]
    topics.fill(topic, events)

    def add(state: dict[str, Any] | None, event: dict[str, Any]) -> dict[str, Any]:
        return {"balance": (state or {"balance": 0})["balance"] + event["amount"]}

    for until in (None, 15):
        until_ms = None if until is None else NOON_MS + until
        rows = rebuild(
            spark,
            cluster={"brokers": topics.bootstrap},
            side=JobInput(topic),
            fold=add,
            until_ms=until_ms,
        ).collect()
        found = {row["key"]: json.loads(row["state"])["balance"] for row in rows}
        assert found == {
            f"a{k}": sum(n for n in range(until or 30) if n % 3 == k) for k in range(3)
        }


def test_job_errors_are_one_line(
    spark: Any, topics: Topics, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, brokers = str(tmp_path / "archive"), ["-b", topics.bootstrap]
    topics.numbers(topic, 10)

    def fails(*command: str) -> str:
        capsys.readouterr()
        assert penstock(["job", *command, *brokers]) == 1
        lines = capsys.readouterr().err.splitlines()
        (line,) = [line for line in lines if line.startswith("penstock: ")]
        return line

    error = fails("archive", topic, "--to", "s3://bucket/a", "--to-format", "iceberg")
    assert "load an IcebergTable with a catalog in a pipeline" in error
    assert penstock(["job", "archive", topic, "--to", root, *brokers]) == 0
    error = fails("replay", root, topic, "--to", topic, "--where", "payloads = '1'", "--yes")
    assert "`payloads` cannot be resolved" in error
    # Records deleted before the next run.
    topics.numbers(topic, 10, start=10)
    topics.trim(topic, 0, 15)
    assert "--allow-loss" in fails("archive", topic, "--to", root)
    assert penstock(["job", "archive", topic, "--to", root, "--allow-loss", *brokers]) == 0
    topics.recreate(topic)
    topics.numbers(topic, 30)
    assert "created again" in fails("archive", topic, "--to", root, "--allow-loss")
    found = read_archive(spark, root, [topic]).selectExpr("int(string(value)) as n").collect()
    assert sorted(row["n"] for row in found) == [*range(10), *range(15, 20)]


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_archive_as_a_table_has_each_record_once(
    topics: Topics,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    spark: Any,
    form: str,
) -> None:
    root, brokers = str(tmp_path / "archive"), ["-b", topics.bootstrap]
    command = ["job", "archive", topic, "--to", root, "--to-format", form, *brokers]
    monkeypatch.setattr(archive, "TABLE_BATCH_ROWS", 15)
    for first in (0, 20):
        topics.numbers(topic, 20, start=first)
        assert penstock(command) == 0
        assert "20 records" in capsys.readouterr().out
    # The driver dies between the commit of the table and Spark's.
    commits = Path(root) / "_checkpoints" / topic / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    assert penstock(command) == 0
    assert "0 records" in capsys.readouterr().out
    assert count_rows(archive.table_of(root, form)) == 40
    with pytest.raises(OptionError, match="replay and audit need an archive in Parquet"):
        read_archive(spark, root)


def test_invalid_archive_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not an archive"):
        read_archive(spark, str(tmp_path))
    assert merge_small(spark, Archive(str(tmp_path)), ["t"], 1) == 0
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(OptionError, match="is a table of Delta"):
        read_archive(spark, str(tmp_path))
