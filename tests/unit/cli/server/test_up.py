"""The ready line and the settings given as pairs."""

import pytest

from penstock.cli.server.up import announce, parse_pairs
from penstock.cli.terminal.errors import UserError


def test_ready_line_has_its_exact_format(capsys: pytest.CaptureFixture[str]) -> None:
    announce("127.0.0.1:9092", "http://127.0.0.1:8080")
    assert capsys.readouterr().out == (
        "penstock ready kafka=127.0.0.1:9092 http=http://127.0.0.1:8080\n"
    )


def test_pairs_may_contain_equals_signs_and_the_last_wins() -> None:
    assert parse_pairs(["a=1", "b=x=y", "a = 2"], "--set") == {"a": "2", "b": "x=y"}
    assert parse_pairs(["a="], "--set") == {"a": ""}


@pytest.mark.parametrize("text", ["a", "=1", " =1"])
def test_invalid_pair_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write --set name=value"):
        parse_pairs([text], "--set")
