"""Checkpoints, as Spark writes them: where an older version of a stage stopped."""

from pathlib import Path

import pytest

from penstock.pipelines import Pipeline, PipelineError
from penstock.pipelines.checkpoints import end_of, last_batch, older_end
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
    (folder / "commits").mkdir(exist_ok=True)
    if is_committed:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_end_is_that_of_the_last_committed_batch(tmp_path: Path) -> None:
    old = tmp_path / "p" / "sum" / "v1"
    assert last_batch(str(old)) is None
    assert older_end(str(tmp_path), stage(2)) is None
    write(old, 9, '{"a": {"0": 30}}')
    write(old, 10, '{"a": {"0": 36}}')
    write(old, 11, '{"a": {"0": 40}}', is_committed=False)
    assert last_batch(str(old)) == 10
    assert end_of(str(old)) == '{"a": {"0": 36}}'
    assert older_end(str(tmp_path), stage(2)) == '{"a": {"0": 36}}'
    assert older_end(str(tmp_path), stage(4)) == '{"a": {"0": 36}}'
    assert older_end(str(tmp_path), stage(1)) is None
    write(tmp_path / "p" / "sum" / "v2", 0, '{"a": {"0": 50}}')
    assert older_end(str(tmp_path), stage(2)) is None, "it has begun: Spark knows where it is"
    assert older_end(str(tmp_path), stage(3)) == '{"a": {"0": 50}}'


def test_what_holds_no_offsets_of_topics_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, 0, '{"batch": 3, "taken": {}, "owed": {}}')
    assert end_of(str(tmp_path)) is None


def test_a_file_system_that_is_not_known_says_what_to_do() -> None:
    with pytest.raises(PipelineError, match="begin to 'committed'"):
        last_batch("nosuch://folder/x")
