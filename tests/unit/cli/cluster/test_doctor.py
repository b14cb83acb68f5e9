"""`penstock doctor` against a broker, and without one."""

import json
from pathlib import Path

import pytest

from penstock.cli import main

NOBODY = "127.0.0.1:1"


def test_a_cluster_that_does_not_answer_fails_and_the_rest_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["doctor", "--data", str(tmp_path), "-b", NOBODY, "--format", "json"]
    assert main.run(arguments) == 1
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["cluster"]["verdict"] == "fail"
    assert "penstock up" in found["cluster"]["action"]
    assert {"disk space", "sync", "open files", "clock", "config"} <= found.keys()


def test_what_to_do_stands_below_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web = "http://127.0.0.1:1"
    assert main.run(["doctor", "--data", str(tmp_path), "-b", NOBODY, "--http", web]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("fail") and web in line)
    assert "->" in lines[at + 1]


def test_an_address_that_is_none_is_a_mistake_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["doctor", "--data", str(tmp_path), "-b", NOBODY, "--http", "x"]) == 1
    assert "--http" in capsys.readouterr().err
