"""`penstock pipeline`: what is said about a pipeline that is not heard of."""

import pytest

from penstock.cli.main import run
from penstock.cli.spark.pipelines import shown_state
from penstock.pipelines.status_topic import LIVENESS_TIMEOUT_MS


def test_overdue_stage_is_shown_as_silent() -> None:
    line = {"state": "running", "updated_ms": 1_000}
    assert shown_state(line, 1_000 + LIVENESS_TIMEOUT_MS) == "running"
    assert shown_state(line, 1_001 + LIVENESS_TIMEOUT_MS) == "silent (was running)"
    assert shown_state({**line, "state": "finished"}, 10**9) == "finished"
    assert shown_state(line, None) == "running"


def test_missing_pipeline_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "plan", "nowhere.py"]) == 1
    assert capsys.readouterr().err == "penstock: file not found: nowhere.py\n"
