"""Finding the pipeline in a file."""

from pathlib import Path

import pytest

from penstock.pipelines import PipelineError
from penstock.pipelines.loader import load

ONE = 'from penstock.pipelines import Pipeline\np = Pipeline("one")\n'


def test_the_only_pipeline_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "one_pipeline.py"
    file.write_text(ONE + "same = p\n")
    assert load(str(file)).name == "one"
    assert load(f"{file}:same").name == "one"


def test_files_that_leave_it_open(tmp_path: Path) -> None:
    file = tmp_path / "two_pipelines.py"
    file.write_text(ONE + 'orders = Pipeline("two")\n')
    with pytest.raises(PipelineError, match="several pipelines"):
        load(str(file))
    assert load(f"{file}:orders").name == "two"
    with pytest.raises(PipelineError, match="did you mean 'orders'"):
        load(f"{file}:order")
    file.write_text("x = 1\n")
    with pytest.raises(PipelineError, match="makes no Pipeline"):
        load(str(file))
    with pytest.raises(PipelineError, match="there is no file"):
        load(str(tmp_path / "none.py"))
    with pytest.raises(PipelineError, match="there is no module 'nowhere_at_all'"):
        load("nowhere_at_all:p")
