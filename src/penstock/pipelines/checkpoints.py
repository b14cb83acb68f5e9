"""Checkpoints of stages: existence, and end offsets of the previous version.

A new version of a stage with changed state has its own folder and starts where the previous one
stopped: at the end of its last committed batch, which only its checkpoint knows exactly. A batch
that is planned but not in the commit log may still be in the topic, if the driver died or was
stopped in between; `is_written` checks that.
"""

import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pyarrow import ArrowInvalid
from pyarrow import fs as filesystems

from penstock.pipelines.endpoints import PipelineError
from penstock.pipelines.pipeline import Stage
from penstock.spark.range_planning import ForeignOffsets, from_json

IsWritten: TypeAlias = Callable[[str, int], bool]
"""True if a batch, given by query id and batch number, is committed in its output topics."""

_HEADER_LINES: Final = 2
"""Header lines of an offset log entry: its version and the batch's metadata."""
_FILE_LOG: Final = "_spark_metadata"
"""Log in the output folder of a stream, where Spark lists the valid files of each batch."""


def path_of(root: str, stage: Stage) -> str:
    return f"{root.rstrip('/')}/{stage.checkpoint}"


def last_batch(checkpoint: str) -> int | None:
    """Number of the last committed batch; None if there is none."""
    return _last(f"{checkpoint}/commits")


def end_offsets(
    checkpoint: str, is_written: IsWritten = lambda query_id, batch: False
) -> str | None:
    """End of the last written batch, in the format of startingOffsets; None: no batch yet."""
    batch = last_batch(checkpoint)
    planned = _last(f"{checkpoint}/offsets")
    if planned is not None and planned != batch and is_written(_query_id(checkpoint), planned):
        batch = planned
    if batch is None:
        return None
    lines = _text(f"{checkpoint}/offsets/{batch}").splitlines()[_HEADER_LINES:]
    # A source that two branches read has two entries with the same offsets.
    for line in lines:
        try:
            offsets = json.loads(line)
            from_json(offsets)
        except (ValueError, ForeignOffsets):
            continue
        if offsets:
            return json.dumps(offsets)
    return None


def end_of_previous_version(
    root: str,
    stage: Stage,
    part: str = "",
    is_written: IsWritten = lambda query_id, batch: False,
) -> str | None:
    """End offsets of the newest previous version of a stage; None if this one has started.

    `part` is the suffix of the checkpoint of the stage's second query.
    """
    if last_batch(path_of(root, stage) + part) is not None:
        return None
    for version in range(stage.version - 1, 0, -1):
        older = f"{root.rstrip('/')}/{stage.pipeline}/{stage.name}/v{version}{part}"
        found = end_offsets(older, is_written)
        if found is not None:
            return found
    return None


def check_output_folder(stage: Stage, folder: str, checkpoint: str) -> None:
    """Refuses an output folder whose log already lists batch numbers of a new checkpoint."""
    try:
        is_new = _last(f"{checkpoint}/offsets") is None
        has_log = _last(f"{folder}/{_FILE_LOG}") is not None
    except PipelineError:  # Spark may support a file system that PyArrow does not.
        return
    if is_new and has_log:
        raise PipelineError(
            f"stage {stage.name!r} starts a new checkpoint, but Spark's log in {folder} belongs to "
            "another one: Spark would skip the first batches as already written. Set another "
            f"folder for version {stage.version}: to=Files(...)"
        )


def _last(folder: str) -> int | None:
    """Highest number among the file names of a folder; Spark adds a suffix to some."""
    system, path = _system(folder)
    selector = filesystems.FileSelector(path, allow_not_found=True)
    names = [info.base_name.removesuffix(".compact") for info in system.get_file_info(selector)]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _query_id(checkpoint: str) -> str:
    return str(json.loads(_text(f"{checkpoint}/metadata"))["id"])


def _text(file: str) -> str:
    system, path = _system(file)
    with system.open_input_file(path) as opened:
        found: bytes = opened.read()
        return found.decode()


def _system(path: str) -> tuple[Any, str]:
    if "://" not in path:
        return filesystems.LocalFileSystem(), path
    try:
        found: tuple[Any, str] = filesystems.FileSystem.from_uri(path)
    except ArrowInvalid as error:
        raise PipelineError(
            f"the checkpoint of the previous version cannot be read: {error}; set begin to "
            "'committed' to start at the group's committed offsets"
        ) from None
    return found
