"""Invalid filter policies, with error messages recorded from Amazon."""

import json
from typing import Any

import pytest

from penstock.gateway.sns.filter_policies import check_policy
from penstock.gateway.sqs.errors import Fault


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
