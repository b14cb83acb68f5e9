"""Patterns of clients: whole names, RE2 syntax, a refusal that says what is wrong."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.groups import compile_pattern


def test_pattern_matches_whole_names() -> None:
    matches = compile_pattern("orders-[0-9]+")
    assert matches("orders-17")
    assert not matches("orders-17x")
    assert not matches("my-orders-17")


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", r"(a)\1", "(?=ahead)"])
def test_unsupported_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(Refused) as refused:
        compile_pattern(pattern)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert pattern in str(refused.value) or repr(pattern) in str(refused.value)


def test_backtracking_pattern_is_fast() -> None:
    assert not compile_pattern("(a*)*b")("a" * 5_000)
