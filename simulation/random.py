"""Seeded random numbers: the same seed gives the same ids, salts and jitter."""

import random


class SimRandom:
    def __init__(self, seed: int | str) -> None:
        self._rng = random.Random(seed)
        self._jitter = random.Random(f"{seed}/jitter")

    def random_bytes(self, count: int) -> bytes:
        return self._rng.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._rng.uniform(low, high)

    def jitter(self) -> float:
        return self._jitter.random()
