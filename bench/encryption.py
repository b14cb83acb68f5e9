"""Cost of encryption at rest: a plain and an encrypted topic in turns, on one broker."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import load, proc
from bench.measures import GB, READ_TIMES, Figures, Sizes, settle
from bench.sides import Process, penstock, topic

PARTITIONS = 6
SIZE = 1024
VERBS = ("produce", "consume")
GONE_SECONDS = 1.5
"""Wait after which the pages of a deleted topic are free (`sides.TIDY`)."""


@contextmanager
def running(root: Path) -> Iterator[Process]:
    """Broker with encryption available, enabled per topic."""
    root.mkdir(parents=True, exist_ok=True)
    kek = root / "kek"
    kek.write_text(bytes(range(32)).hex())
    with penstock({"encryption.kek.source": f"file:{kek}"}).running(root) as process:
        yield process


def traffic(process: Process, sizes: Sizes, number: int = 0) -> Figures:
    """Produces to a topic of each kind and reads it back; returns the lost share of the plain rate.

    Odd rounds start with the encrypted topic: the second one finds another state of memory and
    disk. The first topic is deleted before the second is created, so that both use the same pages.
    """
    figures: Figures = {}
    kinds = ("plain", "encrypted") if number % 2 == 0 else ("encrypted", "plain")
    for kind in kinds:
        wanted = {"encryption.enable": str(kind == "encrypted").lower()}
        with topic(process.bootstrap, PARTITIONS, config=wanted) as name:
            for verb in VERBS:
                key = f"encryption_{verb}_{kind}"
                figures[f"{key}_rate"], figures[f"{key}_cpu"] = _measure(process, verb, name, sizes)
        time.sleep(GONE_SECONDS)
    for verb in VERBS:
        plain = figures[f"encryption_{verb}_plain_rate"]
        encrypted = figures[f"encryption_{verb}_encrypted_rate"]
        figures[f"encryption_{verb}_cost"] = 100 * (1 - encrypted / plain)
    return figures


def _measure(process: Process, verb: str, name: str, sizes: Sizes) -> tuple[float, float]:
    """Messages per second, and broker CPU seconds per GB."""
    count = sizes.messages(SIZE)
    settle(sizes if verb == "produce" else None)
    more, times = (load.PRODUCER, 1) if verb == "produce" else ({}, READ_TIMES)
    seconds = 0.0
    with proc.watched(process.pid) as used:
        for _ in range(times):
            done = load.run(verb, process.bootstrap, name, PARTITIONS, count, SIZE, settings=more)
            seconds += done["seconds"]
    return count * times / seconds, used.cpu_s / (count * times * SIZE / GB)
