"""Mapping of a certificate's name to a principal: `ssl.principal.mapping.rules` (KIP-371).

Rules are separated by commas and tried in order: `RULE:pattern/replacement/` with an optional `L`
or `U` for lower or upper case, or `DEFAULT` for the whole name. Patterns use RE2's syntax and must
match the whole name, so that no crafted name passes. A name that matches no rule is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import re2  # type: ignore[import-untyped]

from penstock.base.errors import ErrorCode, Refused
from penstock.security.acl_types import NODE_USER

RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
RULES_MAX = 100


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; without a pattern it returns the name unchanged."""

    pattern: object | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)  # type: ignore[attr-defined]
        if found is None:
            return None
        text = re.sub(
            r"\$(\d)", lambda group: found.group(int(group.group(1))) or "", self.replacement
        )
        return text.lower() if self.case == "L" else text.upper() if self.case == "U" else text


def parse_rules(text: str) -> Sequence[Rule]:
    """Parses rules; raises Refused with the position of the error."""
    rules: list[Rule] = []
    position = 0
    text = text.strip() or "DEFAULT"
    while position < len(text):
        found = RULE.match(text, position)
        if found is None or len(rules) >= RULES_MAX:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"invalid ssl.principal.mapping.rules at {text[position : position + 40]!r}: "
                f"use at most {RULES_MAX} rules such as RULE:^CN=(.*?),.*$/$1/L or DEFAULT",
            )
        rules.append(_rule(found))
        position = found.end()
        separator = re.match(r"\s*,\s*|\s*$", text[position:])
        if separator is None:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"ssl.principal.mapping.rules: missing comma before {text[position:][:40]!r}",
            )
        position += separator.end()
    return rules


def _rule(found: "re.Match[str]") -> Rule:
    if found.group(1):
        return Rule(None)
    try:
        pattern = re2.compile(found.group(2).replace("\\/", "/"))
    except re2.error as error:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"ssl.principal.mapping.rules: {found.group(2)!r}: {error}"
        ) from error
    replacement = found.group(3).replace("\\/", "/")
    for number in re.findall(r"\$(\d)", replacement):
        if int(number) > pattern.groups:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"ssl.principal.mapping.rules: ${number} is not a group of {found.group(2)!r}",
            )
    return Rule(pattern, replacement, found.group(4))


def principal_of(rules: Sequence[Rule], name: str) -> str:
    """Principal of a certificate's name; raises Refused if no rule matches."""
    for rule in rules:
        found = rule.apply(name)
        if found == NODE_USER:
            break  # Nodes authenticate with the cluster's secret, not with a certificate.
        if found:
            return f"User:{found}"
    raise Refused(
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        f"no rule of ssl.principal.mapping.rules matches {name!r}",
    )
