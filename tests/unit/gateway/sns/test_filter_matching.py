"""Matching of messages against filter policies."""

import json
from typing import Any

import pytest

from penstock.gateway.sns.filter_matching import is_like, matches_attributes, matches_body
from penstock.gateway.sns.filter_policies import check_policy, read_policy
from penstock.gateway.sqs.digests import AttributeValue


def text(value: str) -> AttributeValue:
    return AttributeValue("String", value)


def number(value: str) -> AttributeValue:
    return AttributeValue("Number", value)


MESSAGE = {
    "store": text("north-1"),
    "price": number("15.50"),
    "tags": AttributeValue("String.Array", '["red", "blue", 7]'),
    "none": AttributeValue("String.Array", "[]"),
    "raw": AttributeValue("Binary", binary_value=b"north-1"),
    "a.b": text("dotted"),
    "$or": text("odd"),
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
        ({"store": [{"anything-but": {"prefix": "south"}}]}, True),
        ({"store": [{"anything-but": {"suffix": "-1"}}]}, False),
        ({"store": [{"anything-but": {"suffix": ["-2", "-3"]}}]}, True),
        ({"store": [{"anything-but": {"wildcard": "n*h-*"}}]}, False),
        ({"store": [{"anything-but": {"equals-ignore-case": ["NORTH-1", "x"]}}]}, False),
        ({"store": [{"wildcard": "n*-1"}]}, True),
        ({"store": [{"wildcard": "n*-2"}]}, False),
        ({"price": [{"anything-but": [15.5]}]}, False),
        ({"price": [{"anything-but": 15}]}, True),
        ({"tags": [{"anything-but": ["red", "blue"]}]}, True),
        ({"tags": [{"anything-but": ["red", "blue", 7]}]}, False),
        ({"none": [{"exists": False}]}, True),
        ({"raw": [{"exists": True}]}, False),
        ({"raw": ["north-1"]}, False),
        ({"a.b": ["dotted"]}, True),
        ({"$or": ["odd"]}, True),
        ({"$or": [{"prefix": "o"}, {"suffix": "x"}]}, True),
        ({"other": [{"exists": False}, {"anything-but": "x"}]}, True),
        ({"price": [15.500001]}, True),
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
def test_attributes_match_policy(policy: dict[str, Any], is_wanted: bool) -> None:
    check_policy(json.dumps(policy), is_of_body=False)
    assert matches_attributes(read_policy(json.dumps(policy)), MESSAGE) is is_wanted


S3 = {
    "Records": {
        "s3": {"object": {"key": [{"prefix": "auto-"}]}},
        "eventName": [{"prefix": "ObjectCreated:"}],
    }
}


def of_s3(*records: tuple[str, Any]) -> str:
    return json.dumps(
        {"Records": [{"eventName": name, "s3": {"object": thing}} for name, thing in records]}
    )


CREATED, REMOVED = "ObjectCreated:Put", "ObjectRemoved:Delete"
AUTO, HOME = {"key": "auto-1.xml"}, {"key": "home-1.xml"}
ALARM = {
    "$or": [{"metricName": ["CPU", "Latency"]}, {"namespace": ["EC2"]}],
    "detail": {"scope": ["Service"], "$or": [{"source": ["watch"]}, {"type": ["Alarm"]}]},
}


@pytest.mark.parametrize(
    ("policy", "body", "is_wanted"),
    [
        ({"a": {"b": [1]}}, '{"a": {"b": 1}}', True),
        ({"a": {"b": [1]}}, '{"a": {"b": true}}', False),
        ({"a": {"b": [1]}}, '{"a": 1}', False),
        ({"a": [None]}, '{"a": null}', True),
        ({"a": [None]}, "{}", False),
        ({"a": ["x"]}, '{"a": ["y", "x"]}', True),
        ({"a": ["x"]}, '{"a": {"x": "x"}}', False),
        ({"a": ["x"]}, "not json", False),
        ({"a": ["x"]}, "[]", False),
        ({"a": ["x"]}, '{"a": ' + "[" * 5_000 + "]" * 5_000 + "}", False),
        # In a list of objects, one object must match completely.
        (S3, of_s3((CREATED, AUTO)), True),
        (S3, of_s3((REMOVED, AUTO)), False),
        (S3, of_s3((CREATED, HOME)), False),
        (S3, of_s3((REMOVED, HOME), (CREATED, [[AUTO]])), True),
        (S3, of_s3((REMOVED, AUTO), (CREATED, HOME)), False),
        (S3, '{"Records": []}', False),
        # Names with dots are nested names.
        ({"a.b": ["v"]}, '{"a": {"b": "v"}}', True),
        ({"a.b": ["v"]}, '{"a.b": "v"}', True),
        ({"a.b": ["v"]}, '{"a": {"b": "w"}}', False),
        ({"a.b.c": ["v"]}, '{"a": {"b": {"c": "v"}}}', True),
        ({"a.b.c": ["v"]}, '{"a.b": {"c": "v"}}', True),
        ({"a.b.c": ["v"]}, '{"a": {"b.c": "v"}}', True),
        ({"a.b.c": ["v"]}, '{"a": [{"b.c": "w"}, {"b.c": "v"}]}', True),
        ({"a": {"b": ["v"]}}, '{"a.b": "v"}', True),
        # Missing values and empty lists.
        ({"a": {"b": [{"exists": False}]}}, '{"c": 1}', True),
        ({"a": {"b": [{"exists": False}]}}, '{"a": {"b": 1}}', False),
        ({"a": [{"exists": False}]}, '{"a": []}', True),
        ({"a": [{"exists": True}]}, '{"a": [null]}', True),
        ({"a": [{"exists": True}]}, '{"a": {"b": 1}}', False),
        ({"a": {"b": [""]}}, '{"c": [], "a": {"b": "", "d": null}}', True),
        # Alternatives, at the top level and nested.
        (ALARM, '{"metricName": "CPU", "detail": {"scope": "Service", "type": "Alarm"}}', True),
        (ALARM, '{"namespace": "EC2", "detail": {"scope": "Service", "source": "watch"}}', True),
        (ALARM, '{"metricName": "CPU", "detail": {"scope": "Other", "type": "Alarm"}}', False),
        (ALARM, '{"metricName": "CPU", "detail": {"scope": "Service"}}', False),
        (ALARM, '{"metricName": "EC2", "detail": {"scope": "Service", "type": "Alarm"}}', False),
        # Addresses.
        ({"ip": [{"cidr": "10.0.0.0/24"}]}, '{"ip": "10.0.0.255"}', True),
        ({"ip": [{"cidr": "10.0.0.0/24"}]}, '{"ip": "10.0.0.256"}', False),
        ({"ip": [{"cidr": "10.0.0.0/24"}]}, '{"ip": "10.0.1.1"}', False),
        ({"ip": [{"cidr": "2001:db8:1234:1a00::/64"}]}, '{"ip": "2001:0db8:1234:1a00::1"}', True),
        ({"ip": [{"cidr": "2001:db8:1234:1a00::/64"}]}, '{"ip": "10.0.0.1"}', False),
    ],
)
def test_body_matches_policy(policy: dict[str, Any], body: str, is_wanted: bool) -> None:
    check_policy(json.dumps(policy), is_of_body=True)
    assert matches_body(read_policy(json.dumps(policy)), body) is is_wanted


@pytest.mark.parametrize(
    ("pattern", "value", "is_right"),
    [
        ("abc", "abc", True),
        ("abc", "abcd", False),
        ("*", "", True),
        ("a*", "a", True),
        ("a*a", "a", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("*.png", "x.png", True),
        (r"a\*b", "a*b", True),
        (r"a\*b", "axb", False),
        (r"a\\*", "a\\x", True),
        ("*" + "a*" * 500 + "b", "a" * 5_000, False),
    ],
)
def test_wildcard_matches_any_text(pattern: str, value: str, is_right: bool) -> None:
    assert is_like(pattern, value) is is_right
