"""Data keys: one key per incarnation, counted nonces."""

import pytest

from penstock.security import data_keys
from penstock.security.data_keys import CIPHERS_KEPT_MAX, PREFIX_BYTES, DamagedSeal, DataKeys
from penstock.security.keyring import aes_gcm

ROOT = bytes(32)


def keys(root: bytes = ROOT) -> DataKeys:
    return DataKeys(root, aes_gcm)


def opened(made: DataKeys, sealed: bytes, associated: bytes = b"") -> bytes:
    plain = bytearray(len(sealed) - PREFIX_BYTES - data_keys.TAG_BYTES)
    made.open_into(sealed, associated, memoryview(plain))
    return bytes(plain)


def test_sealed_data_is_opened_with_the_same_root_key() -> None:
    sealed = keys().incarnate(b"a" * 12).seal(b"content", b"about it")
    assert b"content" not in sealed
    assert opened(keys(), sealed, b"about it") == b"content"


def test_same_content_never_looks_the_same() -> None:
    made = keys()
    one, other = made.incarnate(b"a" * 12), made.incarnate(b"b" * 12)
    sealed = {one.seal(b"content", b"") for _ in range(100)}
    sealed |= {other.seal(b"content", b"") for _ in range(100)}
    assert len({whole[:PREFIX_BYTES] for whole in sealed}) == 200
    assert len({whole[PREFIX_BYTES:] for whole in sealed}) == 200


@pytest.mark.parametrize("at", [0, PREFIX_BYTES - 1, PREFIX_BYTES, -1])
def test_wrong_bit_anywhere_is_noticed(at: int) -> None:
    sealed = bytearray(keys().incarnate(b"a" * 12).seal(b"content", b""))
    sealed[at] ^= 1
    with pytest.raises(DamagedSeal):
        opened(keys(), bytes(sealed))


def test_another_root_or_other_associated_data_open_nothing() -> None:
    sealed = keys().incarnate(b"a" * 12).seal(b"content", b"about it")
    with pytest.raises(DamagedSeal):
        opened(keys(b"\1" * 32), sealed, b"about it")
    with pytest.raises(DamagedSeal):
        opened(keys(), sealed, b"about another")


def test_ciphers_kept_for_readers_are_bounded() -> None:
    made = keys()
    for number in range(3 * CIPHERS_KEPT_MAX):
        made.incarnate(number.to_bytes(12, "big"))
    assert len(made._ciphers) <= CIPHERS_KEPT_MAX
