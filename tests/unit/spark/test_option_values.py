"""Parsers of option values: valid values are parsed, invalid ones refused."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.spark.option_values import (
    OptionError,
    assignment,
    brokers,
    choice,
    delay,
    flag,
    names,
    nearest,
    number,
    offsets,
    text,
)


@pytest.mark.parametrize(
    ("parse", "written", "meant"),
    [
        (flag, "TRUE", True),
        (number(0), "12", 12),
        (number(0, 5), "5", 5),
        (choice("a", "b"), " B ", "b"),
        (names, "a, b,,c", ("a", "b", "c")),
        (brokers, "h:1,i:2", "h:1,i:2"),
        (delay, "250", 250),
        (delay, "15m", 900_000),
        (delay, "2 s", 2_000),
        (assignment, '{"t":[1,0,1]}', {"t": [0, 1]}),
        (offsets("latest"), "Latest", "latest"),
        (offsets(), '{"t":{"1":-2,"0":7}}', ({"t": {0: 7, 1: -2}}, {})),
        (offsets(), '{"t":{"0":7},"@topicIds":{"t":"x"}}', ({"t": {0: 7}}, {"t": "x"})),
        (text, " x ", "x"),
    ],
)
def test_valid_values_are_parsed(parse: Callable[..., Any], written: str, meant: object) -> None:
    assert parse("name", written) == meant


@pytest.mark.parametrize(
    ("parse", "written"),
    [
        (flag, "yes"),
        (number(1), "0"),
        (number(1), "1.5"),
        (number(0, 5), "6"),
        (choice("a", "b"), "c"),
        (names, " , "),
        (brokers, "h:99999"),
        (brokers, ""),
        (delay, "soon"),
        (delay, "5 parsecs"),
        (assignment, "[]"),
        (assignment, '{"t":["0"]}'),
        (assignment, "{"),
        (offsets("latest"), "newest"),
        (offsets("latest"), '{"t":{"x":1}}'),
        (offsets("latest"), '{"t":{"0":-3}}'),
        (offsets("latest"), '{"t":{"0":true}}'),
        (offsets("latest"), '{"t":{}}'),
        (offsets("latest"), '{"t":5}'),
        (text, "  "),
    ],
)
def test_invalid_values_are_refused_with_the_option_name(
    parse: Callable[..., Any], written: str
) -> None:
    with pytest.raises(OptionError, match="'someOption'"):
        parse("someOption", written)


def test_nearest_name_keeps_its_spelling() -> None:
    assert nearest("VALUES", ["value", "key"]) == "value"
    assert nearest("timestamptyp", ["timestampType", "timestamp"]) == "timestampType"
    assert nearest("zzz", ["value"]) is None
