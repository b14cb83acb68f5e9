"""End offsets of a stage's previous version, from checkpoints in Spark's format."""

from pathlib import Path

import pytest

from penstock.pipelines import Pipeline, PipelineError
from penstock.pipelines.checkpoints import (
    check_output_folder,
    end_of_previous_version,
    end_offsets,
    last_batch,
)
from penstock.pipelines.pipeline import Stage


def stage(version: int) -> Stage:
    pipeline = Pipeline("p")
    pipeline.extract("a", to="b", name="sum", version=version)(lambda rows: rows)
    return pipeline.stage("sum")


def write(folder: Path, batch: int, line: str, *, is_committed: bool = True) -> None:
    for name, text in (("offsets", f'v1\n{{"batchWatermarkMs":0}}\n{line}\n{line}'),):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / str(batch)).write_text(text)
        (folder / name / f".{batch}.crc").write_bytes(b"x")
    (folder / "metadata").write_text(f'{{"id":"query of {folder.name}"}}')
    (folder / "commits").mkdir(exist_ok=True)
    if is_committed:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_end_is_that_of_the_last_committed_batch(tmp_path: Path) -> None:
    old = tmp_path / "p" / "sum" / "v1"
    assert last_batch(str(old)) is None
    assert end_of_previous_version(str(tmp_path), stage(2)) is None
    write(old, 9, '{"a": {"0": 30}}')
    write(old, 10, '{"a": {"0": 36}}')
    write(old, 11, '{"a": {"0": 40}}', is_committed=False)
    assert last_batch(str(old)) == 10
    assert end_offsets(str(old)) == '{"a": {"0": 36}}'
    assert end_of_previous_version(str(tmp_path), stage(2)) == '{"a": {"0": 36}}'
    assert end_of_previous_version(str(tmp_path), stage(4)) == '{"a": {"0": 36}}'
    assert end_of_previous_version(str(tmp_path), stage(1)) is None
    write(tmp_path / "p" / "sum" / "v2", 0, '{"a": {"0": 50}}')
    assert end_of_previous_version(str(tmp_path), stage(2)) is None, "this version has started"
    assert end_of_previous_version(str(tmp_path), stage(3)) == '{"a": {"0": 50}}'


def test_written_batch_without_commit_log_entry_counts(tmp_path: Path) -> None:
    old = tmp_path / "p" / "sum" / "v1"
    asked: list[tuple[str, int]] = []

    def is_written(query_id: str, batch: int) -> bool:
        asked.append((query_id, batch))
        return batch == 11

    write(old, 10, '{"a": {"0": 36}}')
    assert end_of_previous_version(str(tmp_path), stage(2), "", is_written) == '{"a": {"0": 36}}'
    assert asked == [], "the last batch has a commit log entry"
    write(old, 11, '{"a": {"0": 40}}', is_committed=False)
    assert end_of_previous_version(str(tmp_path), stage(2), "", is_written) == '{"a": {"0": 40}}'
    assert asked == [("query of v1", 11)]
    write(old, 11, '{"a": {"0": 40}}')
    write(old, 12, '{"a": {"0": 50}}', is_committed=False)
    assert end_of_previous_version(str(tmp_path), stage(2), "", is_written) == '{"a": {"0": 40}}'


def test_dead_letter_query_has_its_own_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "p" / "sum" / "v1", 0, '{"a": {"0": 36}}')
    write(tmp_path / "p" / "sum" / "v1.dlq", 0, '{"a": {"0": 30}}')
    assert end_of_previous_version(str(tmp_path), stage(2)) == '{"a": {"0": 36}}'
    assert end_of_previous_version(str(tmp_path), stage(2), ".dlq") == '{"a": {"0": 30}}'


def test_folder_with_the_log_of_another_query_is_refused(tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "files", tmp_path / "v2"
    check_output_folder(stage(2), str(folder), str(checkpoint))
    log = folder / "_spark_metadata"
    log.mkdir(parents=True)
    check_output_folder(stage(2), str(folder), str(checkpoint))
    (log / "9.compact").write_text("v1")
    with pytest.raises(PipelineError, match="folder for version 2"):
        check_output_folder(stage(2), str(folder), str(checkpoint))
    write(checkpoint, 0, '{"a": {"0": 36}}', is_committed=False)
    check_output_folder(stage(2), str(folder), str(checkpoint))
    check_output_folder(stage(2), "nosuch://folder/x", str(checkpoint))


def test_offsets_of_a_queue_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, 0, '{"batch": 3, "taken": {}, "owed": {}}')
    assert end_offsets(str(tmp_path)) is None


def test_unknown_file_system_is_refused() -> None:
    with pytest.raises(PipelineError, match="begin to 'committed'"):
        last_batch("nosuch://folder/x")
