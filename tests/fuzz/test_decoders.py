"""Every decoder, for a moment: what broke it once, what it begins with, and damage to that.

`make fuzz` goes on from here with coverage as its guide (`guided`).
"""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.decoders import TARGETS, run, seeds

CORPUS = Path(__file__).parent / "corpus"
DAMAGED = 150
PIECES = [
    b"[" * 5_000,
    b'{"a":' * 5_000,
    b"\x00",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\x80" * 5,
    b'"',
    b"{",
    b"[",
    b"1e999",
    b"\xc3",
]


@pytest.mark.parametrize("name", TARGETS)
def test_corpus_is_refused_or_read(name: str) -> None:
    for path in sorted((CORPUS / name).glob("*")):
        run(name, path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_refused_or_read(name: str) -> None:
    rng = random.Random(7)
    known = list(seeds(name))
    for seed in known:
        run(name, seed)
    for _ in range(DAMAGED):
        data = bytearray(rng.choice(known))
        for _ in range(rng.randint(1, 4)):
            at = rng.randint(0, len(data))
            data[at : at + rng.randint(0, 4)] = rng.choice(PIECES)
        run(name, bytes(data))


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=300))
@settings(max_examples=50, deadline=None)
def test_garbage_is_refused_or_read(name: str, data: bytes) -> None:
    run(name, data)


def test_every_decoder_has_seeds() -> None:
    for name in TARGETS:
        assert len(list(seeds(name))) > 1, name
    folders = {path.name for path in CORPUS.glob("*") if path.is_dir()}
    assert folders <= set(TARGETS), "a corpus of nothing"
