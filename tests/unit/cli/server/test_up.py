"""The ready line and the settings given as pairs."""

import pytest

from penstock.cli.server.up import parse_pairs, ready_notice
from penstock.cli.terminal.errors import UserError


def test_ready_line_has_its_exact_format(capsys: pytest.CaptureFixture[str]) -> None:
    ready_notice("./penstock-data")("127.0.0.1:9092", "http://127.0.0.1:8080")
    assert capsys.readouterr().out == (
        "penstock ready kafka=127.0.0.1:9092 http=http://127.0.0.1:8080\n"
    )


def test_terminal_is_told_addresses_data_and_how_to_stop(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    ready_notice("./penstock-data")("127.0.0.1:9092", "http://127.0.0.1:8080")
    said = capsys.readouterr().out
    assert "penstock ready" not in said
    for word in ("127.0.0.1:9092", "http://127.0.0.1:8080", "./penstock-data", "Ctrl-C"):
        assert word in said


def test_terminal_is_told_the_nodes_of_a_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    ready_notice("./c")("h:1,h:2", "http://h:8080,http://h:8081")
    said = capsys.readouterr().out.splitlines()
    assert "  Kafka    h:1, h:2" in said
    assert "  Console  http://h:8080 (the same on each node: http://h:8081)" in said


def test_pairs_may_contain_equals_signs_and_the_last_wins() -> None:
    assert parse_pairs(["a=1", "b=x=y", "a = 2"], "--set") == {"a": "2", "b": "x=y"}
    assert parse_pairs(["a="], "--set") == {"a": ""}


@pytest.mark.parametrize("text", ["a", "=1", " =1"])
def test_invalid_pair_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write --set name=value"):
        parse_pairs([text], "--set")
