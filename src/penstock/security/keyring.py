"""Key-encryption keys: their text format, and the root keys that they wrap (RFC 3394).

A key-encryption key (KEK) never touches data. It wraps the root key of each log, 32 random bytes,
and only the wrapped form is ever on disk; `penstock.security.data_keys` derives keys from a root.
A KEK is named by a digest of itself, so no names have to be assigned, and a wrong key can be told
from a missing one.

The text has one key per line, 32 bytes in base64 or hexadecimal. The first one wraps new root
keys, the others are kept for what they wrapped earlier. Empty lines and text after a `#` are
ignored.

Pure except for the random source, a parameter. `cryptography` is imported with the first key.
"""

import base64
import binascii
import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from penstock.base.buffer_pool import BufferPool
from penstock.base.ports import Buffer, Random

KEY_BYTES = 32
KEKS_MAX = 64
SCRATCH_BYTES = 2 << 20
ID_DIGITS = 16
_ID_CONTEXT = b"penstock key-encryption key"


class KeyTrouble(Exception):
    """Unusable keys. The message says why and what to do."""


class UnknownKek(KeyTrouble):
    """Data was wrapped with a key that is not in the keyring."""


class Cipher(Protocol):
    """Authenticated encryption with one key."""

    def encrypt_into(
        self, nonce: Buffer, data: Buffer, associated_data: Buffer, buf: Buffer, /
    ) -> int: ...

    def decrypt_into(
        self, nonce: Buffer, data: Buffer, associated_data: Buffer, buf: Buffer, /
    ) -> int: ...


class Kek(NamedTuple):
    id: str
    key: bytes

    def __repr__(self) -> str:
        return f"Kek({self.id})"


class Wrapped(NamedTuple):
    """A root key in the form in which it is stored on disk."""

    kek_id: str
    key: bytes


def aes_gcm(key: bytes) -> Cipher:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def kek_of(key: bytes) -> Kek:
    return Kek(hashlib.sha256(_ID_CONTEXT + key).hexdigest()[:ID_DIGITS], key)


def parse_keks(text: str) -> tuple[Kek, ...]:
    """Parses keys, the current one first. Raises KeyTrouble, whose message never contains a key."""
    if importlib.util.find_spec("cryptography") is None:
        raise KeyTrouble(
            "encryption needs the package cryptography: pip install 'penstock-mq[security]'"
        )
    found: dict[str, Kek] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        written = line.partition("#")[0].strip()
        if written:
            kek = kek_of(_parse_key(written, number))
            found.setdefault(kek.id, kek)
    if not found:
        raise KeyTrouble("no key found: create one with 'penstock encryption new-key'")
    if len(found) > KEKS_MAX:
        raise KeyTrouble(f"{len(found)} keys are too many: keep at most {KEKS_MAX}")
    return tuple(found.values())


def _parse_key(written: str, line: int) -> bytes:
    try:
        if len(written) == 2 * KEY_BYTES:
            return bytes.fromhex(written)
        key = base64.b64decode(written, validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyTrouble(
            f"line {line} is not a key of {KEY_BYTES} bytes in base64 or hexadecimal: "
            "create one with 'penstock encryption new-key'"
        )
    return key


class Keyring:
    """KEKs of a node: the current one wraps new root keys, all unwrap old ones."""

    def __init__(
        self,
        keks: Sequence[Kek],
        random: Random,
        cipher: Callable[[bytes], Cipher] = aes_gcm,
    ) -> None:
        self.replace(keks)
        self.random = random
        self.cipher = cipher
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        """For the one thread that appends: what it seals is written at once, and pages that were
        just used are cheaper than new ones."""
        self.buffers = BufferPool()
        """For the same thread, to open what it sends."""

    def replace(self, keks: Sequence[Kek]) -> None:
        """Replaces the keys; the first one wraps new root keys."""
        self._keks = {kek.id: kek for kek in keks}
        self.current = keks[0]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._keks)

    def new_root(self) -> bytes:
        return self.random.random_bytes(KEY_BYTES)

    def wrap(self, root: bytes) -> Wrapped:
        from cryptography.hazmat.primitives.keywrap import aes_key_wrap

        kek = self.current
        return Wrapped(kek.id, aes_key_wrap(kek.key, root))

    def unwrap(self, wrapped: Wrapped) -> bytes:
        """Unwraps a root key; raises UnknownKek, or KeyTrouble if the wrapped key is damaged."""
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

        kek = self._keks.get(wrapped.kek_id)
        if kek is None:
            raise UnknownKek(
                f"it was encrypted under the key {wrapped.kek_id}, which encryption.kek.source "
                f"does not contain; it has {', '.join(self._keks)}"
            )
        try:
            return aes_key_unwrap(kek.key, wrapped.key)
        except (InvalidUnwrap, ValueError):
            raise KeyTrouble("its wrapped key is damaged") from None
