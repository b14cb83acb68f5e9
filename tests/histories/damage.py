"""Damage to what a minority keeps: lost, older than it should be, or not what was written.

The node is stopped, alone or with all other nodes, spoiled, and started: in the second case it is
the first and has some seconds to lead whatever it thinks it has.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.histories.stage import Stage, end

Spoil = Callable[[Stage, Path], None]


def without_partitions(stage: Stage, data: Path) -> None:
    """One topic's directory is gone."""
    for directory in _logs(stage, data):
        shutil.rmtree(directory)


def without_logs(stage: Stage, data: Path) -> None:
    """All logs are gone; what else the node keeps is there."""
    shutil.rmtree(data / "logs")


def flipped_log(stage: Stage, data: Path) -> None:
    """One bit of every active segment, anywhere in it."""
    for directory in _logs(stage, data):
        segments = [path for path in sorted(directory.rglob("*.log")) if path.stat().st_size]
        for path in segments[-1:]:
            _flip(stage, path)


def flipped_index(stage: Stage, data: Path) -> None:
    for directory in _logs(stage, data):
        for path in (*directory.rglob("*index"), *directory.rglob("*.snapshot")):
            _flip(stage, path)


def flipped_checkpoint(stage: Stage, data: Path) -> None:
    """Everything small that says how far which log was good."""
    names = ("checkpoint", "leader-epochs", "high-watermarks", "clean-shutdown")
    for name in names:
        for path in data.rglob(name):
            _flip(stage, path)


def _logs(stage: Stage, data: Path) -> list[Path]:
    """The directories of the topic that is watched."""
    return sorted((data / "logs").glob(f"{stage.topic}.*"))


def _flip(stage: Stage, path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[stage.random.randrange(len(content))] ^= 1 << stage.random.randrange(8)
        path.write_bytes(content)


def spoil_one(stage: Stage, spoil: Spoil) -> None:
    """The rest of the cluster continues meanwhile."""
    victim = stage.whole().leader
    node = stage.node(victim)
    node.kill()
    spoil(stage, stage.data_of(victim))
    stage.load.wait_progress()
    node.start()
    stage.load.wait_progress()


def spoil_first(stage: Stage, spoil: Spoil) -> None:
    """All are stopped; the spoiled one is the first to come back."""
    victim = stage.whole().leader
    stage.stop_all()
    spoil(stage, stage.data_of(victim))
    stage.start_first(victim)
    stage.load.wait_progress()


def roll_back(stage: Stage) -> None:
    """An earlier copy of the whole data directory, taken after a clean stop, comes back."""
    victim = stage.whole().leader
    node, data = stage.node(victim), stage.data_of(victim)
    copy = data.with_name(f"{data.name}-before")
    node.stop()
    shutil.copytree(data, copy)
    node.start()
    stage.whole()
    stage.load.wait_progress(4)
    stage.stop_all()
    shutil.rmtree(data)
    copy.rename(data)
    stage.start_first(victim)
    stage.load.wait_progress()


def roll_back_alone(stage: Stage) -> None:
    """The same while the rest of the cluster continues."""
    victim = stage.whole().leader
    node, data = stage.node(victim), stage.data_of(victim)
    copy = data.with_name(f"{data.name}-before")
    node.stop()
    shutil.copytree(data, copy)
    node.start()
    stage.whole()
    stage.load.wait_progress(2)
    node.kill()
    end(node)
    shutil.rmtree(data)
    copy.rename(data)
    stage.load.wait_progress()
    node.start()
    stage.load.wait_progress()


def _fault(how: Callable[[Stage, Spoil], None], spoil: Spoil) -> Callable[[Stage], None]:
    def fault(stage: Stage) -> None:
        how(stage, spoil)

    fault.__name__ = f"{how.__name__}_{spoil.__name__}"
    return fault


STATE: Sequence[Callable[[Stage], None]] = (
    _fault(spoil_first, without_partitions),
    roll_back,
    _fault(spoil_first, flipped_log),
    _fault(spoil_one, without_logs),
    _fault(spoil_first, flipped_checkpoint),
    _fault(spoil_first, without_logs),
    _fault(spoil_one, flipped_log),
    roll_back_alone,
    _fault(spoil_first, flipped_index),
    _fault(spoil_one, without_partitions),
)
