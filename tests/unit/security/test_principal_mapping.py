"""Mapping of certificate names to principals."""

import pytest

from penstock.base.errors import Refused
from penstock.security.principal_mapping import parse_rules, principal_of

NAME = "CN=Alice,OU=Shop,O=Example"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("", f"User:{NAME}"),
        ("DEFAULT", f"User:{NAME}"),
        ("RULE:^CN=(.*?),OU=Shop.*$/$1/", "User:Alice"),
        ("RULE:^CN=(.*?),OU=Shop.*$/$1/L", "User:alice"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1/U", "User:SHOP-ALICE"),
        ("RULE:^CN=Bob.*$/bob/, RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "User:alice"),
        ("RULE:^CN=Bob.*$/bob/,DEFAULT", f"User:{NAME}"),
        (r"RULE:^CN=(.*?),.*$/a\/$1/", "User:a/Alice"),
    ],
)
def test_first_rule_that_matches_names_the_principal(rules: str, principal: str) -> None:
    assert principal_of(parse_rules(rules), NAME) == principal


def test_pattern_must_match_the_whole_name() -> None:
    rules = parse_rules("RULE:CN=Alice/admin/")
    with pytest.raises(Refused):
        principal_of(rules, NAME)
    assert principal_of(rules, "CN=Alice") == "User:admin"


@pytest.mark.parametrize("name", ["CN=__node", "CN=__NODE"])
def test_certificate_never_maps_to_the_node_principal(name: str) -> None:
    rules = parse_rules("RULE:CN=(.*)/$1/L,DEFAULT")
    with pytest.raises(Refused):
        principal_of(rules, name)


@pytest.mark.parametrize(
    "rules", ["nonsense", "RULE:a/b", "RULE:(/x/", "RULE:a/$1/", "DEFAULT DEFAULT"]
)
def test_rules_that_make_no_sense_are_refused_when_they_are_read(rules: str) -> None:
    with pytest.raises(Refused, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)
