"""Key-encryption keys: where they are written down, and the keys that they wrap (RFC 3394).

A key-encryption key (KEK) never touches data. It wraps the root key of each log, 32 random bytes,
and only that wrapped form is ever on disk; `penstock.security.data_keys` says what is made of a
root. A KEK is named by a digest of itself, so nobody has to invent names, and a wrong key is told
from a missing one.

The text that holds them has one key a line, 32 bytes in base64 or hexadecimal; the first one wraps
what is new, the others are kept for what they wrapped earlier. Empty lines and what follows a `#`
do not count.

Pure but for the randomness that comes in. `cryptography` is loaded with the first key.
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
    """Keys that cannot be used as they are. The message says why and what to do."""


class UnknownKek(KeyTrouble):
    """Something was wrapped with a key that is not here."""


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
    """A root key as it may be on disk."""

    kek_id: str
    key: bytes


def aes_gcm(key: bytes) -> Cipher:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def kek_of(key: bytes) -> Kek:
    return Kek(hashlib.sha256(_ID_CONTEXT + key).hexdigest()[:ID_DIGITS], key)


def parse_keks(text: str) -> tuple[Kek, ...]:
    """The keys of a text, the one in use first. Raises KeyTrouble, which never shows a key."""
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
        raise KeyTrouble("there is no key; 'penstock encryption new-key' makes one")
    if len(found) > KEKS_MAX:
        raise KeyTrouble(f"{len(found)} keys; at most {KEKS_MAX} may be kept")
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
            f"line {line} is no key of {KEY_BYTES} bytes in base64 or hexadecimal; "
            "'penstock encryption new-key' makes one"
        )
    return key


class Keyring:
    """The KEKs of a node: they wrap what is new, and unwrap what is old."""

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
        """From now on these, the first one for what is new."""
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
        """Raises UnknownKek, or KeyTrouble for what no key can unwrap."""
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

        kek = self._keks.get(wrapped.kek_id)
        if kek is None:
            raise UnknownKek(
                f"it was encrypted under the key {wrapped.kek_id}, which encryption.kek.source "
                f"does not hold; there are {', '.join(self._keks)}"
            )
        try:
            return aes_key_unwrap(kek.key, wrapped.key)
        except (InvalidUnwrap, ValueError):
            raise KeyTrouble("its wrapped key is damaged") from None
