"""Loading of pipelines from files and modules."""

from pathlib import Path

import pytest

from penstock.pipelines import PipelineError
from penstock.pipelines.loader import load

ONE = 'from penstock.pipelines import Pipeline\np = Pipeline("one")\n'


def test_single_pipeline_of_a_file_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "one_pipeline.py"
    file.write_text(ONE + "same = p\n")
    assert load(str(file)).name == "one"
    assert load(f"{file}:same").name == "one"


def test_ambiguous_and_missing_pipelines_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "two_pipelines.py"
    file.write_text(ONE + 'orders = Pipeline("two")\n')
    with pytest.raises(PipelineError, match="several pipelines"):
        load(str(file))
    assert load(f"{file}:orders").name == "two"
    with pytest.raises(PipelineError, match="did you mean 'orders'"):
        load(f"{file}:order")
    file.write_text("x = 1\n")
    with pytest.raises(PipelineError, match="does not define a Pipeline"):
        load(str(file))
    with pytest.raises(PipelineError, match="file not found"):
        load(str(tmp_path / "none.py"))
    with pytest.raises(PipelineError, match="'nowhere_at_all'"):
        load("nowhere_at_all:p")
