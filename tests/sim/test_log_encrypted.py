"""Encrypted logs keep every invariant of plain ones, and no nonce is used twice.

The same runs as in `test_log_crash`, with encryption on; and the cipher itself is watched over all
of them: crashes, truncations, failed writes, restarts, and appends of recovered copies.
"""

import errno
import random
from dataclasses import replace

import pytest

from penstock.base.ports import Buffer
from penstock.log.encryption.log_encryption import LogCipher
from penstock.security.data_keys import SALT_BYTES, Incarnation
from penstock.security.keyring import Cipher, Keyring, aes_gcm, kek_of
from simulation.disk import Fault
from simulation.random import SimRandom
from tests.sim.log_damage import flip_and_check
from tests.sim.log_workload import CONFIG, PATH, Options, run_seed
from tests.sim.seeds import replayable, seeds

ENCRYPTED = replace(CONFIG, encrypted=True)


class CheckerContext:
    """Sees every key and nonce that is ever used to encrypt."""

    def __init__(self) -> None:
        self.pairs: set[tuple[bytes, bytes]] = set()
        self.keys: set[bytes] = set()
        self.repeated = False

    def cipher(self, key: bytes) -> Cipher:
        return WatchedCipher(self, key, aes_gcm(key))


class WatchedCipher:
    def __init__(self, witness: CheckerContext, key: bytes, cipher: Cipher) -> None:
        self._witness = witness
        self._key = key
        self._cipher = cipher
        self.decrypt_into = cipher.decrypt_into

    def encrypt_into(self, nonce: Buffer, data: Buffer, associated: Buffer, buf: Buffer, /) -> int:
        pair = (self._key, bytes(nonce))
        self._witness.repeated |= pair in self._witness.pairs
        self._witness.pairs.add(pair)
        self._witness.keys.add(self._key)
        return self._cipher.encrypt_into(nonce, data, associated, buf)


def watched(seed: int) -> tuple[CheckerContext, Keyring]:
    witness, randomness = CheckerContext(), SimRandom(seed)
    return witness, Keyring([kek_of(bytes(32))], randomness, witness.cipher)


@pytest.mark.parametrize("seed", seeds(1))
def test_power_cut_at_any_operation_loses_nothing_and_repeats_no_nonce(
    seed: int, request: pytest.FixtureRequest
) -> None:
    witness, keyring = watched(seed)
    with replayable(seed, request):
        results = run_seed(seed, Options(config=ENCRYPTED, keyring=keyring))
    assert results.cuts >= results.operations > 300
    assert not witness.repeated
    assert len(witness.pairs) > results.batches, "batches and caches, of the log and of its copies"
    assert len(witness.keys) > results.cuts / 10, "what goes on after a cut has keys of its own"


@pytest.mark.parametrize("seed", seeds(30))
def test_failed_writes_and_full_disks_repeat_no_nonce(
    seed: int, request: pytest.FixtureRequest
) -> None:
    def faults(rng: random.Random) -> list[Fault]:
        code = errno.ENOSPC if seed % 2 else errno.EIO
        operations = ("append", "append", "sync", "rename", "open", "*")
        skips = sorted(rng.randint(0, 80) for _ in range(6 if seed % 2 else 1))
        return [Fault(rng.choice(operations), code, PATH, skip) for skip in skips]

    witness, keyring = watched(seed)
    options = Options(False, faults, config=ENCRYPTED, keyring=keyring)
    with replayable(seed, request):
        run_seed(seed, options)
    assert witness.pairs
    assert not witness.repeated


@pytest.mark.parametrize("seed", seeds(30))
def test_flipped_bit_in_an_encrypted_log_is_never_served(
    seed: int, request: pytest.FixtureRequest
) -> None:
    _, keyring = watched(seed)
    with replayable(seed, request):
        flip_and_check(seed, Options(False, config=ENCRYPTED, keyring=keyring))


@pytest.mark.parametrize("bug", ["the same salt", "a count from the file"])
def test_repeated_nonce_is_detected(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The witness can see: these are two mistakes of other systems."""

    def forgetful(cipher: LogCipher) -> Incarnation:
        assert cipher._keys is not None
        return cipher._keys.incarnate(bytes(SALT_BYTES))

    monkeypatch.setattr(LogCipher, "incarnate", forgetful)
    if bug == "a count from the file":
        monkeypatch.setattr(Incarnation, "seal_into", seal_by_size)
    witness, keyring = watched(1)
    run_seed(1, Options(False, config=ENCRYPTED, keyring=keyring))
    assert witness.repeated


def seal_by_size(
    self: Incarnation, content: Buffer, associated: Buffer, buffer: memoryview
) -> None:
    """A nonce that follows from what is written."""
    count = len(content).to_bytes(4, "big")
    buffer[:16] = self._salt + count
    self._cipher.encrypt_into(bytes(8) + count, content, associated, buffer[16:])
