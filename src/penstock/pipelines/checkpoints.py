"""Checkpoints of stages: whether there is one, and how far the one of an older version came.

A new version of a stage that keeps other state has a folder of its own and begins where the older
one stopped: at the end of its last committed batch, which only its checkpoint knows exactly. A
batch that was planned and is not in the log of commits may be in the topic all the same: that the
driver died, or was stopped, between the two is what `is_written` is asked about.
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
"""Whether a batch of a query, told by its id and number, is in the topics it goes to."""

_HEADER_LINES: Final = 2
"""Of an entry in the offset log: its version, and the batch's metadata."""
_FILE_LOG: Final = "_spark_metadata"
"""In a folder that Spark writes a stream to: which files of which batches count."""


def path_of(root: str, stage: Stage) -> str:
    return f"{root.rstrip('/')}/{stage.checkpoint}"


def last_batch(checkpoint: str) -> int | None:
    """The number of the last committed batch, or None where there is none."""
    return _last(f"{checkpoint}/commits")


def end_of(checkpoint: str, is_written: IsWritten = lambda query_id, batch: False) -> str | None:
    """Where its last written batch ended, as startingOffsets takes it; None: nowhere yet."""
    batch = last_batch(checkpoint)
    planned = _last(f"{checkpoint}/offsets")
    if planned is not None and planned != batch and is_written(_query_id(checkpoint), planned):
        batch = planned
    if batch is None:
        return None
    lines = _text(f"{checkpoint}/offsets/{batch}").splitlines()[_HEADER_LINES:]
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


def older_end(
    root: str,
    stage: Stage,
    part: str = "",
    is_written: IsWritten = lambda query_id, batch: False,
) -> str | None:
    """Where the newest older version of the stage stopped, if this one has not begun yet.

    `part` is what the checkpoint of the stage's second query has behind its name.
    """
    if last_batch(path_of(root, stage) + part) is not None:
        return None
    for version in range(stage.version - 1, 0, -1):
        older = f"{root.rstrip('/')}/{stage.pipeline}/{stage.name}/v{version}{part}"
        found = end_of(older, is_written)
        if found is not None:
            return found
    return None


def check_folder(stage: Stage, folder: str, checkpoint: str) -> None:
    """Refuses a folder whose log says of batches still to come that they are written."""
    try:
        is_new = _last(f"{checkpoint}/offsets") is None
        has_log = _last(f"{folder}/{_FILE_LOG}") is not None
    except PipelineError:  # Spark may know this file system; we do not.
        return
    if is_new and has_log:
        raise PipelineError(
            f"stage {stage.name!r} begins a new checkpoint, and Spark's log in {folder} is of "
            "another one: the first batches would be taken for written, and left out. Version "
            f"{stage.version} needs a folder of its own: to=Files(...)"
        )


def _last(folder: str) -> int | None:
    """The highest number among a folder's files; Spark gives some of them an ending."""
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
            f"the checkpoint of the older version cannot be looked at: {error}; set begin to "
            "'committed' to go on where the group stands"
        ) from None
    return found
