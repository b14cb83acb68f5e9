"""Which messages a filter policy lets through."""

import json
from typing import Any

import pytest

from penstock.http.sns.filters import CONDITIONS_MAX, read_policy, wants, wants_body
from penstock.http.sqs.digests import AttributeValue
from penstock.http.sqs.faults import Fault


def text(value: str) -> AttributeValue:
    return AttributeValue("String", value)


def number(value: str) -> AttributeValue:
    return AttributeValue("Number", value)


MESSAGE = {
    "store": text("north-1"),
    "price": number("15.50"),
    "tags": AttributeValue("String.Array", '["red", "blue", 7]'),
}


@pytest.mark.parametrize(
    ("policy", "is_wanted"),
    [
        ({}, True),
        ({"store": ["north-1"]}, True),
        ({"store": ["south", "north-1"]}, True),
        ({"store": ["south"]}, False),
        ({"store": [{"prefix": "north"}]}, True),
        ({"store": [{"suffix": "-2"}]}, False),
        ({"store": [{"equals-ignore-case": "NORTH-1"}]}, True),
        ({"store": [{"anything-but": ["south", "east"]}]}, True),
        ({"store": [{"anything-but": "north-1"}]}, False),
        ({"store": [{"anything-but": {"prefix": "north"}}]}, False),
        ({"price": [15.5]}, True),
        ({"price": [{"numeric": ["=", 15.5]}]}, True),
        ({"price": [{"numeric": [">=", 10, "<", 15.5]}]}, False),
        ({"price": [{"numeric": [">", 10, "<=", 15.5]}]}, True),
        ({"store": [{"numeric": [">", 0]}]}, False),
        ({"tags": ["blue"]}, True),
        ({"tags": [7]}, True),
        ({"tags": ["green"]}, False),
        ({"other": [{"exists": False}]}, True),
        ({"other": [{"exists": True}]}, False),
        ({"store": [{"exists": True}]}, True),
        ({"other": ["x"]}, False),
        ({"other": [{"anything-but": "x"}]}, False),
        ({"store": ["north-1"], "price": [1]}, False),
        ({"$or": [{"store": ["x"]}, {"price": [15.5]}]}, True),
        ({"$or": [{"store": ["x"]}, {"price": [1]}]}, False),
    ],
    ids=str,
)
def test_a_policy_lets_through_what_it_says(policy: dict[str, Any], is_wanted: bool) -> None:
    assert wants(read_policy(json.dumps(policy)), MESSAGE) is is_wanted


@pytest.mark.parametrize(
    ("policy", "body", "is_wanted"),
    [
        ({"a": {"b": [1]}}, '{"a": {"b": 1}}', True),
        ({"a": {"b": [1]}}, '{"a": {"b": true}}', False),
        ({"a": {"b": [1]}}, '{"a": 1}', False),
        ({"a": [None]}, '{"a": null}', True),
        ({"a": ["x"]}, '{"a": ["y", "x"]}', True),
        ({"a": ["x"]}, "no json", False),
        ({"a": ["x"]}, "[]", False),
    ],
)
def test_a_policy_over_the_body_is_nested_like_it(
    policy: dict[str, Any], body: str, is_wanted: bool
) -> None:
    assert wants_body(read_policy(json.dumps(policy)), body) is is_wanted


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"a": "x"}',
        '{"a": []}',
        '{"a": [{"wildcard": "x"}]}',
        '{"a": [{"prefix": 1}]}',
        '{"a": [{"exists": "yes"}]}',
        '{"a": [{"numeric": ["~", 1]}]}',
        '{"a": [{"numeric": [">"]}]}',
        '{"a": [{"prefix": "x", "suffix": "y"}]}',
        '{"$or": [{"a": [1]}]}',
        '{"a": {"b": {"c": {"d": {"e": {"f": [1]}}}}}}',
        json.dumps({"a": list(range(CONDITIONS_MAX + 1))}),
    ],
)
def test_a_policy_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(Fault) as refused:
        read_policy(text)
    assert refused.value.name == "InvalidParameter"
