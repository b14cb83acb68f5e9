"""Checkpoints of stages: whether there is one, and how far the one of an older version came.

A new version of a stage that keeps other state has a folder of its own and begins where the older
one stopped: at the end of its last committed batch, which only its checkpoint knows exactly.
"""

import json
from typing import Any, Final

from pyarrow import ArrowInvalid
from pyarrow import fs as filesystems

from penstock.pipelines.ends import PipelineError
from penstock.pipelines.pipeline import Stage
from penstock.spark.planning import ForeignOffsets, from_json

_HEADER_LINES: Final = 2
"""Of an entry in the offset log: its version, and the batch's metadata."""


def path_of(root: str, stage: Stage) -> str:
    return f"{root.rstrip('/')}/{stage.checkpoint}"


def last_batch(checkpoint: str) -> int | None:
    """The number of the last committed batch, or None where there is none."""
    system, path = _system(checkpoint)
    selector = filesystems.FileSelector(f"{path}/commits", allow_not_found=True)
    names = [info.base_name for info in system.get_file_info(selector)]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def end_of(checkpoint: str) -> str | None:
    """Where its last committed batch ended, as startingOffsets takes it; None: nowhere yet."""
    batch = last_batch(checkpoint)
    if batch is None:
        return None
    system, path = _system(checkpoint)
    with system.open_input_file(f"{path}/offsets/{batch}") as file:
        lines = file.read().decode().splitlines()[_HEADER_LINES:]
    # A source that is read by two branches is there twice, at the same place.
    for line in lines:
        try:
            offsets = json.loads(line)
            from_json(offsets)
        except (ValueError, ForeignOffsets):
            continue
        if offsets:
            return json.dumps(offsets)
    return None


def older_end(root: str, stage: Stage) -> str | None:
    """Where the newest older version of the stage stopped, if this one has not begun yet."""
    if last_batch(path_of(root, stage)) is not None:
        return None
    for version in range(stage.version - 1, 0, -1):
        found = end_of(f"{root.rstrip('/')}/{stage.pipeline}/{stage.name}/v{version}")
        if found is not None:
            return found
    return None


def _system(path: str) -> tuple[Any, str]:
    if "://" not in path:
        return filesystems.LocalFileSystem(), path
    try:
        found: tuple[Any, str] = filesystems.FileSystem.from_uri(path)
    except ArrowInvalid as error:
        raise PipelineError(
            f"the checkpoint of the older version cannot be looked at: {error}; set begin to "
            "'committed' to go on where the group stands"
        ) from None
    return found
