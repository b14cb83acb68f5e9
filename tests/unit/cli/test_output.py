"""Tables that `awk` can read, numbers that people can."""

import pytest

from penstock.cli.output import print_table, show_bytes, show_count


def test_a_table_in_a_pipe_is_plain_and_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "count ", "flag"], [("a", 5, True), ("long [name]", 1234, None)])
    assert capsys.readouterr().out == (
        "NAME         COUNT  FLAG\na                5  yes\nlong [name]   1234  -\n"
    )


def test_a_table_without_rows_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "count "], [])
    assert capsys.readouterr().out == "NAME  COUNT\n"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 40, "3072.0 GiB"),
    ],
)
def test_sizes_are_readable(count: int, text: str) -> None:
    assert show_bytes(count) == text


def test_counts_are_grouped() -> None:
    assert show_count(1234567.4) == "1,234,567"
