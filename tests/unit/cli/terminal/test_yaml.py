"""YAML output equals what a YAML parser reads back."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.terminal.yaml import dumped

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abz:- 1#'"), inner),
    max_leaves=20,
)


@given(VALUES)
def test_every_value_round_trips(value: Any) -> None:
    assert yaml.safe_load(dumped(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "Yes",
        "null",
        "1e3",
        "0x10",
        "2026-11-01",
        "a: b",
        "- a",
        "#",
        "",
        " a",
        "a\nb",
        "~",
        "1:30",
        "=",
        "<<",
        "\x7f",
        "\x85",
        "\u2028",
        "😀",
        "a #b",
        "key:",
        "!tag",
        "*star",
        ".5",
        "wait...",
        "\u202e",
        "a\u200bb",
        "\x1b[2J",
        "long " * 100,
    ],
)
def test_text_like_another_type_stays_text(text: str) -> None:
    for document in ({text: [text]}, {"last": text}, text):
        shown = dumped(document)
        assert yaml.safe_load(shown) == document
        assert shown.replace("\n", "").isprintable()


def test_list_used_twice_is_written_twice() -> None:
    again = ["a"]
    assert dumped({"one": again, "two": again}) == "one:\n  - a\ntwo:\n  - a\n"


def test_keys_are_text_as_in_json() -> None:
    assert yaml.safe_load(dumped({0: "a", None: (1, 2)})) == {"0": "a", "null": [1, 2]}


def test_blocks_are_indented() -> None:
    document = {"name": "orders", "partitions": [{"id": 0, "isr": [1, 2]}], "configs": {}}
    assert dumped(document) == (
        "name: orders\npartitions:\n  - id: 0\n    isr:\n      - 1\n      - 2\nconfigs: {}\n"
    )
