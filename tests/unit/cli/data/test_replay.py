"""Ranges of `penstock replay`; the command itself is in tests/scenarios."""

import pytest

from penstock.cli.data.replay import parse_range
from penstock.cli.main import run
from penstock.cli.terminal.errors import UserError
from penstock.client.offset_syntax import END, START, Anchor, OffsetPosition, OffsetRange


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("start", None, None, None), OffsetRange(START)),
        (("5", None, "end", None), OffsetRange(OffsetPosition(Anchor.EXACT, 5), END)),
        (
            ("-5", None, "7", None),
            OffsetRange(OffsetPosition(Anchor.END, 5), OffsetPosition(Anchor.EXACT, 7)),
        ),
        (
            (None, "2026-11-01", None, "@2026-11-02"),
            OffsetRange(
                OffsetPosition(Anchor.TIME, 1_793_491_200_000),
                OffsetPosition(Anchor.TIME, 1_793_577_600_000),
            ),
        ),
    ],
)
def test_range_has_one_start_and_an_optional_end(
    given: tuple[str | None, ...], wanted: OffsetRange
) -> None:
    assert parse_range(*given) == wanted


@pytest.mark.parametrize(
    "given",
    [
        (None, None, None, None),
        ("5", "-1h", None, None),
        ("5", None, "7", "-1h"),
        ("soon", None, None, None),
        (None, "soon", None, None),
        ("5:9", None, None, None),
    ],
)
def test_invalid_range_is_refused(given: tuple[str | None, ...]) -> None:
    with pytest.raises(UserError):
        parse_range(*given)


@pytest.mark.parametrize("words", [[], ["--group", "g", "--to-topic", "u"]])
def test_replay_needs_a_group_or_a_topic(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", "t", "--from-offset", "0", *words]) == 1
    assert "--group" in capsys.readouterr().err
