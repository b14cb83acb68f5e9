"""Invalid filter policies, with error messages recorded from Amazon."""

import json
from typing import Any

import pytest

from penstock.gateway.sns.filter_policies import (
    check_policy,
    is_like,
    matches_attributes,
    matches_body,
    read_policy,
)
from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.message_attributes import AttributeValue


def refusal(policy: object, *, is_of_body: bool = False) -> str:
    text = policy if isinstance(policy, str) else json.dumps(policy)
    with pytest.raises(Fault) as refused:
        check_policy(text, is_of_body=is_of_body)
    assert refused.value.name == "InvalidParameter"
    return refused.value.message.removeprefix("Invalid parameter: ")


CONDITIONS: list[tuple[Any, str]] = [
    (["value"], "Match value must be String, number, true, false, or null"),
    ({"wrong-operator": True}, "Unrecognized match type wrong-operator"),
    ({"suffix": "value", "prefix": "value2"}, "Only one key allowed in match expression"),
    ({"suffix": 100}, "suffix match pattern must be a string"),
    ({"suffix": None}, "suffix match pattern must be a string"),
    ({"suffix": ["test", "test2"]}, "suffix match pattern must be a string"),
    ({"wildcard": 1}, "wildcard match pattern must be a string"),
    ({"wildcard": "a**b"}, "Consecutive wildcard characters are not allowed"),
    ({"cidr": ["bad-filter"]}, "prefix match pattern must be a string"),
    ({"cidr": "bad-filter"}, "Malformed CIDR, one '/' required"),
    ({"cidr": "bad-filter/64"}, "Nonstandard IP address: bad-filter"),
    ({"cidr": "bad-/64filter"}, "Malformed CIDR, mask bits must be an integer"),
    ({"cidr": "xx.11.xx/8"}, "Nonstandard IP address: xx.11.xx"),
    ({"cidr": "xxxx:db8:1234:1a00::/64"}, "Nonstandard IP address: xxxx:db8:1234:1a00::"),
    ({"cidr": "10.0.0.0/33"}, "Malformed CIDR, there are too many mask bits"),
    ({"exists": None}, "exists match pattern must be either true or false."),
    ({"exists": "no"}, "exists match pattern must be either true or false."),
    ({"anything-but": {"wrong-operator": None}},
     "Unsupported anything-but pattern: wrong-operator"),
    ({"anything-but": {"exists": False}}, "Unsupported anything-but pattern: exists"),
    ({"anything-but": {"prefix": False}}, "prefix match pattern must be a string"),
    ({"anything-but": {"prefix": []}}, "prefix match pattern must be a string"),
    ({"anything-but": []},
     "Value of anything-but must be an array or single string/number value."),
    ({"numeric": []}, "Invalid member in numeric match: ]"),
    ({"numeric": ["operator"]}, "Unrecognized numeric range operator: operator"),
    ({"numeric": [1, "<="]}, "Invalid member in numeric match: 1"),
    ({"numeric": ["=", "000"]}, "Value of equals must be numeric"),
    ({"numeric": [">="]}, "Value of >= must be numeric"),
    ({"numeric": ["<", 100, ">", 10]}, "Too many elements in numeric expression"),
    ({"numeric": [">=", 1, ">", 2]}, "Bad numeric range operator: >"),
    ({"numeric": [">", 3, "<", 1]}, "Bottom must be less than top"),
    ({"numeric": [">", 20, "<="]}, "Value of <= must be numeric"),
    ({"numeric": [">", 20, 30]}, "Bad value in numeric range: 30"),
    ({"numeric": [">", 20, "test"]}, "Bad numeric range operator: test"),
    ({"numeric": [">", "20", "<", "30"]}, "Value of > must be numeric"),
    ({"numeric": [">", 20, "<", "30"]}, "Value of < must be numeric"),
    ({"numeric": [">", 20, "<", 30, "<", 50]}, "Too many terms in numeric range expression"),
    ({"numeric": ["=", 10**9 + 1]}, "Value must be between -1000000000 and 1000000000"),
    ({"numeric": ["=", True]}, "Value of equals must be numeric"),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "why"), CONDITIONS, ids=[str(row[0]) for row in CONDITIONS])
def test_invalid_condition_is_refused(condition: Any, why: str) -> None:
    assert refusal({"key": [condition]}) == f"FilterPolicy: {why}"


def many(name: str, count: int) -> list[str]:
    return [f"{name}{number}" for number in range(count)]


NESTED = {
    "key_a": {"key_b": {"key_c": many("v", 4)}},
    "key_d": {"key_e": many("v", 3)},
    "key_f": many("v", 3),
}
"""3 x 4 x 2 x 3 x 1 x 3 = 216."""
ALTERNATIVES = {
    "source": many("s", 4),
    "$or": [
        {"metricName": many("m", 6)},
        {
            "metricType": many("t", 4),
            "$or": [{"metricId": many("i", 4)}, {"spaceId": many("p", 4)}],
        },
    ],
}
"""4 x 6 + 4 x 4 x 4 + 4 x 4 x 4 = 152."""
SHAPES: list[tuple[Any, bool, str]] = [
    ({"key": []}, False, "FilterPolicy: Empty arrays are not allowed"),
    ({"key_a": "value_one"}, True, 'FilterPolicy: "key_a" must be an object or an array'),
    ({"key": {"suffix": "value"}}, False, 'FilterPolicy: "suffix" must be an object or an array'),
    ({"object": {"key": [{"prefix": "auto-"}]}}, False,
     "Filter policy scope MessageAttributes does not support nested filter policy"),
    ({"$or": [{"a": {"b": [1]}}, {"c": [1]}]}, False,
     "Filter policy scope MessageAttributes does not support nested filter policy"),
    ({"key": many("v", 151)}, False, "FilterPolicy: Filter policy is too complex"),
    ({"key1": many("v", 100), "key2": many("v", 51)}, False,
     "FilterPolicy: Filter policy is too complex"),
    (NESTED, True, "FilterPolicy: Filter policy is too complex"),
    (ALTERNATIVES, False, "FilterPolicy: Filter policy is too complex"),
    ({name: ["v"] for name in "abcdef"}, False,
     "FilterPolicy: Filter policy can not have more than 5 keys"),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "is_of_body", "why"), SHAPES, ids=range(len(SHAPES)))
def test_invalid_policy_is_refused(policy: Any, is_of_body: bool, why: str) -> None:
    assert refusal(policy, is_of_body=is_of_body) == why


@pytest.mark.parametrize("text", ["no json", "[]", "[" * 100_000, '{"a":' * 11 + "[1]" + "}" * 11])
def test_text_that_is_not_a_policy_is_refused(text: str) -> None:
    assert refusal(text, is_of_body=True).startswith("FilterPolicy: ")


def test_too_long_policy_is_refused() -> None:
    assert refusal({"a": ["x" * 256 * 1024]}) == "FilterPolicy: Filter policy is too long"


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"key": many("v", 150)},
        {name: ["v"] for name in "abcde"},
        {"$or": ["a"]},
        {"$or": [{"prefix": "a"}]},
        {"key": [{"anything-but": {"prefix": "test-"}}, {"anything-but": ["test", "test2"]}]},
        {"key": [{"wildcard": "a\\**"}]},
    ],
    ids=range(7),
)
def test_policy_within_the_limits_is_accepted(policy: dict[str, Any]) -> None:
    check_policy(json.dumps(policy), is_of_body=False)


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
