"""The shortest cell on a real cluster: its leader is killed, and the history is in order."""

from pathlib import Path

import pytest

from tests.chaos.network import NotPermitted
from tests.histories.cells import STUCK, run
from tests.histories.checker import OK, require_checker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


def test_history_with_a_killed_leader_is_valid(tmp_path: Path) -> None:
    require_checker()
    try:
        cell = run("kills", "log", 0.1, 0, tmp_path / "cell")
    except NotPermitted as refused:
        pytest.skip(f"network namespaces are not permitted here: {refused}")
    if cell.verdict == STUCK:
        raise TimeoutError(cell.text)
    assert cell.verdict == OK, cell.text
    assert cell.faults == ["kill_leader"]
    assert cell.outcomes["ok"] > 50
