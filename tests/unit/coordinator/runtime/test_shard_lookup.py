"""Mapping of keys to coordinators, as Kafka's own tools compute it."""

import pytest

from penstock.coordinator.runtime.shard_host import java_hash, shard_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("DESIGNING WORKHOUSES", -(2**31)),
        ("console-consumer-12345", 1486498236),
        ("grüße", 98793424),
        ("\U0001f600", 1772899),
    ],
)
def test_hashes_equal_those_of_java(text: str, expected: int) -> None:
    reference = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        reference = (reference * 31 + int.from_bytes(units[at : at + 2], "big")) % 2**32
    signed = reference - 2**32 if reference >= 2**31 else reference
    assert java_hash(text) == signed
    if text in ("", "a", "hello", "polygenelubricants", "DESIGNING WORKHOUSES", "\U0001f600"):
        assert signed == expected, "known from Java"


def test_negative_hash_becomes_non_negative() -> None:
    assert java_hash("group-b") != 0
    for name in ("x", "some-group", "another", "polygenelubricants"):
        assert 0 <= shard_of(name, 50) < 50
    assert shard_of("polygenelubricants", 50) == 0, "the number without a positive twin"
