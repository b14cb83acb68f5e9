"""Data keys of one log: AES-256-GCM, one key per incarnation, a counter as the nonce.

A log has one root key. Each writer creates a new `Incarnation`: 96 random bits, from which and the
root HKDF (RFC 5869) derives a unique key. Its nonces are counted in memory, from zero. So a
(key, nonce) pair never repeats, whatever happens to the file: the counter is never read back from
disk. After a crash, a truncation or a failed write there is another incarnation, or the same one
counts on.

Encrypted data begins with its incarnation and count (`PREFIX_BYTES`); with the root key, that is
all that decryption needs.
"""

import itertools
import struct
from collections.abc import Callable

from penstock.base.ports import Buffer
from penstock.security.keyring import KEY_BYTES, Cipher

SALT_BYTES = 12
PREFIX_BYTES = 16
"""Size of the incarnation and the count."""
TAG_BYTES = 16
COUNT_MAX = 2**32 - 1
CIPHERS_KEPT_MAX = 64
_INFO = b"penstock data key"
_PREFIX = struct.Struct(f">{SALT_BYTES}sI")
_NONCE = struct.Struct(">8xI")
assert _PREFIX.size == PREFIX_BYTES
assert _NONCE.size == 12


class DamagedSeal(Exception):
    """Data that was not encrypted under this key, or not with this associated data."""


class DataKeys:
    """Keys derived from one root. Thread-safe."""

    def __init__(self, root: bytes, cipher: Callable[[bytes], Cipher]) -> None:
        self._root = root
        self._make_cipher = cipher
        self._ciphers: dict[bytes, Cipher] = {}
        from cryptography.exceptions import InvalidTag

        # Once: an import costs a tenth of decrypting a batch of a kilobyte.
        self._invalid: type[Exception] = InvalidTag

    def incarnate(self, salt: bytes) -> "Incarnation":
        """Creates the key of a writer; `salt` is new and random."""
        return Incarnation(salt, self._cipher(salt))

    def open_into(self, sealed: Buffer, associated: Buffer, buffer: memoryview) -> None:
        """Decrypts into `buffer`, which has exactly the size of the content.

        Raises DamagedSeal; the content of `buffer` is undefined then.
        """
        salt, count = _PREFIX.unpack_from(sealed)
        content = memoryview(sealed)[PREFIX_BYTES:]
        try:
            self._cipher(salt).decrypt_into(_NONCE.pack(count), content, associated, buffer)
        except self._invalid:
            raise DamagedSeal from None

    def _cipher(self, salt: bytes) -> Cipher:
        cipher = self._ciphers.get(salt)
        if cipher is None:
            if len(self._ciphers) >= CIPHERS_KEPT_MAX:
                self._ciphers = {}
            cipher = self._ciphers[salt] = self._make_cipher(self._derive(salt))
        return cipher

    def _derive(self, salt: bytes) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), KEY_BYTES, salt, _INFO).derive(self._root)


class Incarnation:
    """Key of one writer. Any thread may encrypt: counting is atomic."""

    __slots__ = ("_cipher", "_counts", "_salt")

    def __init__(self, salt: bytes, cipher: Cipher) -> None:
        assert len(salt) == SALT_BYTES
        self._salt = salt
        self._cipher = cipher
        self._counts = itertools.count()

    def seal_into(self, content: Buffer, associated: Buffer, buffer: memoryview) -> None:
        """Fills `buffer` with the prefix, the encrypted content and the tag."""
        count = next(self._counts)
        assert count <= COUNT_MAX, "a segment has fewer batches than COUNT_MAX"
        _PREFIX.pack_into(buffer, 0, self._salt, count)
        self._cipher.encrypt_into(_NONCE.pack(count), content, associated, buffer[PREFIX_BYTES:])

    def seal(self, content: Buffer, associated: Buffer) -> bytes:
        """Like `seal_into`, into a new buffer."""
        buffer = bytearray(PREFIX_BYTES + len(content) + TAG_BYTES)
        self.seal_into(content, associated, memoryview(buffer))
        return bytes(buffer)
