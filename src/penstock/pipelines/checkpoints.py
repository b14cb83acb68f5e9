"""Checkpoints of stages: whether there is one, and how far the one of an older version came.

A new version of a stage that keeps other state has a folder of its own and begins where the older
one stopped: at the end of its last committed batch, which only its checkpoint knows exactly.
Files are read through Spark, so that it does not matter what kind of file system they are on.
"""

import json
from typing import Any, Final

from pyspark.errors import AnalysisException

from penstock.pipelines.pipeline import Stage
from penstock.spark.planning import ForeignOffsets, from_json

_HEADER_LINES: Final = 2
"""Of an entry in the offset log: its version, and the batch's metadata."""


def path_of(root: str, stage: Stage) -> str:
    return f"{root.rstrip('/')}/{stage.checkpoint}"


def last_batch(spark: Any, checkpoint: str) -> int | None:
    """The number of the last committed batch, or None where there is none."""
    try:
        rows = (
            spark.read.format("binaryFile").load(f"{checkpoint}/commits").select("path").collect()
        )
    except AnalysisException:
        return None
    names = [row["path"].rsplit("/", 1)[-1] for row in rows]
    return max((int(name) for name in names if name.isdigit()), default=None)


def end_of(spark: Any, checkpoint: str) -> str | None:
    """Where its last committed batch ended, as startingOffsets takes it; None: nowhere yet."""
    batch = last_batch(spark, checkpoint)
    if batch is None:
        return None
    rows = spark.read.option("wholetext", True).text(f"{checkpoint}/offsets/{batch}").collect()
    lines = rows[0][0].splitlines()[_HEADER_LINES:]
    for line in lines:
        try:
            offsets = json.loads(line)
            from_json(offsets)
        except (ValueError, ForeignOffsets):
            continue
        if offsets:
            return json.dumps(offsets)
    return None


def older_end(spark: Any, root: str, stage: Stage) -> str | None:
    """Where the newest older version of the stage stopped, if this one has not begun yet."""
    if last_batch(spark, path_of(root, stage)) is not None:
        return None
    for version in range(stage.version - 1, 0, -1):
        found = end_of(spark, f"{root.rstrip('/')}/{stage.pipeline}/{stage.name}/v{version}")
        if found is not None:
            return found
    return None
