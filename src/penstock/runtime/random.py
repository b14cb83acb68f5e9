"""Randomness from the operating system: ids and salts must not be guessable."""

import os
import random


class SystemRandom:
    def __init__(self) -> None:
        self._jitter = random.Random()

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self, low: float, high: float) -> float:
        """Random number for jitter only: cheap, but guessable."""
        return self._jitter.uniform(low, high)

    def jitter(self) -> float:
        return self._jitter.random()
