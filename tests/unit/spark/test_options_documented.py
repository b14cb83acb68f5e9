"""The how-to page documents every option."""

from pathlib import Path

from penstock.spark.settings import OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "spark.md"


def test_every_option_is_documented() -> None:
    text = PAGE.read_text()
    assert [option.name for option in OPTIONS if f"`{option.name}`" not in text] == []
