"""Keyring: formats of keys, wrapping and unwrapping."""

import base64

import pytest

from penstock.security.keyring import (
    KEKS_MAX,
    Keyring,
    KeyTrouble,
    UnknownKek,
    Wrapped,
    kek_of,
    parse_keks,
)
from simulation.random import SimRandom

OLD, NEW = bytes(range(32)), bytes(range(1, 33))


def test_key_is_written_in_base64_or_hexadecimal_and_the_first_one_is_in_use() -> None:
    text = f"# made on a Monday\n\n {base64.b64encode(NEW).decode()}  # new\n{OLD.hex()}\n"
    keks = parse_keks(text)
    assert [kek.key for kek in keks] == [NEW, OLD]
    assert Keyring(keks, SimRandom(0)).current == keks[0]


def test_key_written_twice_is_one_key() -> None:
    assert len(parse_keks(f"{OLD.hex()}\n{base64.b64encode(OLD).decode()}")) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no key"),
        ("# only words", "no key"),
        (OLD.hex()[:-2], "line 1"),
        (f"{OLD.hex()}\nsesame", "line 2"),
        (base64.b64encode(b"short").decode(), "line 1"),
        ("\n".join(bytes([n] * 32).hex() for n in range(KEKS_MAX + 1)), "at most"),
    ],
)
def test_invalid_key_is_refused_without_being_shown(text: str, why: str) -> None:
    with pytest.raises(KeyTrouble, match=why) as found:
        parse_keks(text)
    for line in text.split():
        assert len(line) < 8 or line not in str(found.value)


def test_ids_tell_keys_apart_and_do_not_tell_them() -> None:
    one, other = kek_of(OLD), kek_of(NEW)
    assert one.id != other.id
    assert one.id not in OLD.hex()
    assert OLD.hex() not in repr(one)


def test_wrapped_key_is_unwrapped_with_the_same_key_only() -> None:
    ring = Keyring([kek_of(OLD)], SimRandom(0))
    root = ring.new_root()
    wrapped = ring.wrap(root)
    assert root not in wrapped.key
    assert ring.unwrap(wrapped) == root
    ring.replace([kek_of(NEW), kek_of(OLD)])
    assert ring.unwrap(wrapped) == root
    assert ring.wrap(root).kek_id == kek_of(NEW).id
    ring.replace([kek_of(NEW)])
    with pytest.raises(UnknownKek, match=wrapped.kek_id):
        ring.unwrap(wrapped)


@pytest.mark.parametrize(
    "damage", [lambda key: key[:-1], lambda key: bytes([key[0] ^ 1]) + key[1:]]
)
def test_damaged_wrapped_key_is_never_taken_for_one(damage: object) -> None:
    ring = Keyring([kek_of(OLD)], SimRandom(0))
    wrapped = ring.wrap(ring.new_root())
    assert callable(damage)
    with pytest.raises(KeyTrouble, match="damaged"):
        ring.unwrap(Wrapped(wrapped.kek_id, damage(wrapped.key)))
