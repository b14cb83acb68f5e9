"""One wrong bit in a log that was durable: it must be noticed, and nothing else may be harmed."""

import random

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.log.log import CleanState, Log
from penstock.wire.records import batches
from simulation.clock import EPOCH_MS
from simulation.disk import SimDisk
from simulation.loop import SimLoop
from tests.sim.log_history import History, Violation, read_all
from tests.sim.log_workload import PATH, Life, Options

UNPROTECTED = range(16)
"""Base offset, length and leader epoch of a batch: outside its CRC."""


def flip_and_check(seed: int, options: Options | None = None) -> None:
    rng = random.Random(seed)
    options = options or Options(cut_every_operation=False)
    disk, history, clean = grow(seed, options)
    files = [path for path in disk.files() if path.endswith(".log") and disk.size(path)]
    path = rng.choice(files)
    # Segments that end below the start offset are retention's to remove, whatever is in them.
    after = [*(name for name in files[1:]), ""]
    files = [
        name
        for name, following in zip(files, after, strict=True)
        if not following or base_of(following) > clean.start_offset
    ]
    sizes = [(name, disk.size(name)) for name in files]
    disk.flip_bit(path, draw_bit(disk, path, rng))
    believed = clean if seed % 2 else None
    log = Log.open(disk, PATH, options.config, EPOCH_MS, believed, options.keyring)
    served: list[tuple[int, bytes]] = []
    damage: Exception | None = None
    try:
        read_all(log, served)
    except (Corrupt, Refused) as found:
        damage = found
    history.check_served(served)
    if log.offline is not None:  # Noticed when the log was opened.
        assert not served
    elif damage is None:  # The bit was in records that had been deleted.
        history.check(log, history.start_max)
    elif isinstance(damage, Refused):
        assert damage.code is ErrorCode.KAFKA_STORAGE_ERROR
    if [(name, disk.size(name)) for name in files if disk.exists(name)] != sizes:
        raise Violation("lost: files were cut or removed after damage")


def base_of(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(".log"))


def grow(seed: int, options: Options) -> tuple[SimDisk, History, CleanState]:
    """A log that lived, was closed, and so has a checkpoint over all of it."""
    disk, history = SimDisk(seed), History()
    life = Life(seed, 0, disk, history, options)

    async def main() -> CleanState:
        await life.live()
        assert life.log is not None
        await life.flusher.drain()
        clean = life.log.close()
        assert clean is not None
        history.start_max = history.start_acknowledged = clean.start_offset
        history.acknowledged = clean.end_offset
        return clean

    return disk, history, SimLoop(seed).run(main())


def draw_bit(disk: SimDisk, path: str, rng: random.Random) -> int:
    """Any bit, but half of the time one of those that Kafka's CRC does not cover."""
    data = memoryview(disk.open(path).read(0, disk.size(path)))
    if rng.random() < 0.5:
        return rng.randrange(8 * len(data))
    position, _ = rng.choice(list(batches(data)))
    return 8 * (position + rng.choice(UNPROTECTED)) + rng.randrange(8)
