"""Faults that lose a node's state between two processes: directories, ends of files, bits, or
everything since an earlier copy.

Affects one machine at a time, and only while every replica is in sync: so acknowledged records are
on other machines, and must survive in any order of restarts. Bits flip anywhere; ends are cut only
from data that the machine knows to be committed, because above that nothing distinguishes a cut
from a torn tail.
Sometimes all other machines go down at the same moment, and often the damaged one dies again right
after its restart.

`options_of(seed)` are options of a cluster run with these faults only.
"""

import asyncio
import random
from collections.abc import Callable, Mapping

from penstock.cluster.replication.high_watermark_checkpoint import HighWatermarkFile
from penstock.log import files
from penstock.wire.records import BATCH_OVERHEAD, read_header
from simulation import cluster_run
from simulation.cluster_run import LOG, ClusterRunOptions
from simulation.faults import Cause, FaultPlan
from simulation.host import SimHost

ROOT = "data/logs"
IN_SYNC_TIMEOUT_S = 20.0
"""Maximum wait of a fault for all replicas to be in sync; then it is skipped."""
CHECKPOINT_S = (1.5, 4.0)
"""Wait after which most of the high watermarks are checkpointed."""
SECOND_CRASH_S_MAX = 0.9
LENGTH = range(8, 12)
"""Bytes of the length in a batch."""
Damage = Callable[[FaultPlan, SimHost, random.Random], bool]
"""Damages the disk of an ended process; False if there was nothing to damage."""


def is_in_sync(plan: FaultPlan) -> bool:
    """True while all nodes are up, all replicas in sync, and all nodes know it."""
    nodes = plan.world.cluster.nodes()
    if len(nodes) < len(plan.world.cluster.hosts):
        return False
    brokers = [node for node in nodes if len(node.watcher.image.brokers) == len(nodes)]
    return len(brokers) == len(nodes) and all(
        len(record.isr) == len(record.replicas) and record.leader in record.isr
        for node in nodes
        for topic in node.watcher.image.topics.values()
        for record in topic.partitions
    )


async def await_in_sync(plan: FaultPlan) -> bool:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + IN_SYNC_TIMEOUT_S
    while not is_in_sync(plan):
        if plan.is_healed or loop.time() >= until_s:
            return False
        await asyncio.sleep(0.1)
    return True


def between_restarts(damage: Damage, *, is_clean: bool | None = None) -> Cause:
    """Fault that ends a process, damages its disk, and lets it restart."""

    async def cause(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
        await asyncio.sleep(rng.uniform(*CHECKPOINT_S))
        if not await await_in_sync(plan):
            return
        host = _choose_host(plan, rng)
        if rng.random() < 0.5:
            for other in plan.world.cluster.hosts.values():
                if other is not host:
                    other.kill()
        if is_clean or (is_clean is None and rng.random() < 0.5):
            await host.stop()
        else:
            host.kill()
        if host.node is not None or not damage(plan, host, rng):
            return
        plan.world.reached(f"lost: {damage.__name__}")
        await _die_again(plan, host, rng)

    return cause


def _choose_host(plan: FaultPlan, rng: random.Random) -> SimHost:
    """Chooses a host, usually one that leads a partition."""
    hosts = plan.world.cluster.hosts
    leaders = [
        node.config.node_id
        for node in plan.world.cluster.nodes()
        if any(one.topic == LOG for one in node.partitions.led())
    ]
    return hosts[rng.choice(leaders if leaders and rng.random() < 0.8 else sorted(hosts))]


async def _die_again(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Sometimes kills the host again within a second after its restart."""
    if rng.random() < 0.5:
        return
    until_s = asyncio.get_running_loop().time() + IN_SYNC_TIMEOUT_S
    while not host.is_up and asyncio.get_running_loop().time() < until_s:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await asyncio.sleep(rng.uniform(0, SECOND_CRASH_S_MAX))
    if host.is_up and not plan.is_healed:
        host.kill()


# -- losses -----------------------------------------------------------------------------------


def partition_missing(plan: FaultPlan, host: SimHost, rng: random.Random) -> bool:
    names = [path for path in _partitions(host) if f"/{LOG}." in path]
    for path in rng.sample(names, rng.randint(1, len(names))) if names else ():
        host.disk.remove_path(path)
    return bool(names)


def logs_missing(plan: FaultPlan, host: SimHost, rng: random.Random) -> bool:
    if not host.disk.exists(ROOT):
        return False
    host.disk.remove_path(ROOT)
    return True


def segments_missing(plan: FaultPlan, host: SimHost, rng: random.Random) -> bool:
    paths = [path for path in host.disk.files() if f"/{LOG}." in path and path.endswith(".log")]
    for path in paths:
        host.disk.remove_path(path)
    return bool(paths)


def bit_flipped(plan: FaultPlan, host: SimHost, rng: random.Random) -> bool:
    batches = _batches(host, is_known=False)
    if not batches:
        return False
    known = set(_batches(host, is_known=True))
    unknown = [batch for batch in batches if batch not in known]
    path, position, size = rng.choice(unknown if unknown and rng.random() < 0.5 else batches)
    bit = rng.randrange(8 * size)
    if position + size == host.disk.size(path) and bit // 8 in LENGTH:
        return False  # Like a write that was cut off: nothing could tell.
    host.disk.flip_bit(path, 8 * position + bit)
    return True


def log_shortened(plan: FaultPlan, host: SimHost, rng: random.Random) -> bool:
    batches = _batches(host, is_known=True)
    if not batches:
        return False
    path, position, size = rng.choice(batches)
    host.disk.shorten(path, position + rng.randrange(size))
    return True


def small_file_flipped(plan: FaultPlan, host: SimHost, rng: random.Random) -> bool:
    """Flips a bit in an index, a snapshot, a checkpoint, the epochs, or the replicas' metadata."""
    paths = [
        path
        for path in host.disk.files()
        if path.startswith("/data/")
        and host.disk.size(path)
        and (f"/{LOG}." in path or path.count("/") == 2)
        and not path.endswith((".log", "meta.json"))
    ]
    if paths:
        path = rng.choice(paths)
        host.disk.flip_bit(path, rng.randrange(8 * host.disk.size(path)))
    return bool(paths)


def small_file_missing(plan: FaultPlan, host: SimHost, rng: random.Random) -> bool:
    names = ("/data/high-watermarks", "/data/life", "/data/clean-shutdown")
    paths = [path for path in names if host.disk.exists(path)]
    if paths:
        host.disk.remove_path(rng.choice(paths))
    return bool(paths)


async def directory_rolled_back(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Restores a copy of a stopped or killed machine's disk before a later start."""
    if not await await_in_sync(plan):
        return
    host = _choose_host(plan, rng)
    if rng.random() < 0.7:
        await host.stop()
    else:
        host.kill()
    if host.node is not None:
        return
    copy = host.disk.copy()
    await asyncio.sleep(rng.uniform(1.0, 6.0))
    if not await await_in_sync(plan):
        return
    if rng.random() < 0.5:
        for other in plan.world.cluster.hosts.values():
            if other is not host:
                other.kill()
    if rng.random() < 0.5:
        await host.stop()
    else:
        host.kill()
    if host.node is None:
        host.disk.restore_copy(copy)
        plan.world.reached("lost: directory_rolled_back")
        await _die_again(plan, host, rng)


def _partitions(host: SimHost) -> list[str]:
    disk = host.disk
    return [
        f"{ROOT}/{topic}/{index}"
        for topic in disk.listdir(ROOT)
        for index in disk.listdir(f"{ROOT}/{topic}")
    ]


def _batches(host: SimHost, *, is_known: bool) -> list[tuple[str, int, int]]:
    """Path, position and size of batches that the next start checks; with `is_known`, of those that
    are committed according to the files on disk."""
    disk, found = host.disk, []
    known = HighWatermarkFile(disk, "data").read()
    for directory in _partitions(host):
        if f"/{LOG}." not in directory:
            continue
        checkpoint = files.read_checkpoint(disk, directory)
        checked = checkpoint.recovery_point if checkpoint is not None else 0
        end = known.get(directory.removeprefix(f"{ROOT}/"), 0)
        for name in disk.listdir(directory):
            if not name.endswith(files.LOG):
                continue
            path = f"{directory}/{name}"
            content = memoryview(disk.open(path).read(0, disk.size(path)))
            position = 0
            while position + BATCH_OVERHEAD <= len(content):
                header = read_header(content[position:])
                is_below = not is_known or header.next_offset <= end
                if checked <= header.base_offset and is_below:
                    found.append((path, position, header.size_bytes))
                position += header.size_bytes
    return found


STATE_LOSSES: Mapping[str, Cause] = {
    "partition missing": between_restarts(partition_missing),
    "all logs missing": between_restarts(logs_missing),
    "segments missing": between_restarts(segments_missing),
    "bit flipped in a log": between_restarts(bit_flipped, is_clean=False),
    "log shortened": between_restarts(log_shortened, is_clean=False),
    "bit flipped in a small file": between_restarts(small_file_flipped),
    "small file missing": between_restarts(small_file_missing),
    "directory rolled back": directory_rolled_back,
}


def options_of(seed: int) -> ClusterRunOptions:
    """Options of a run with one loss at a time, long enough to get back in sync between them."""
    options = cluster_run.options_of(seed)
    options.faults = STATE_LOSSES
    options.groups, options.has_copiers = 0, False
    options.concurrent_faults, options.pause_s = 1, 1.0
    options.chaos_s = 60.0
    options.log_records = 300
    options.overrides = {
        **options.overrides,
        "replica.high.watermark.checkpoint.interval.ms": "1000",
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "300",
    }
    return options
