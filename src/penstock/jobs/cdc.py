"""The job `cdc`: change events, or an outbox's, as the table that they describe.

A table is a folder of versions. A version holds all rows as of some offsets, which are part of
it; the file `_current` names the one that counts, and is replaced as a whole. So a run that dies
leaves the old version, and one that is repeated reads the same events again: every event counts
once. The last `KEPT` versions are there for those who are still reading them.

Events are JSON values: Debezium's envelope (`op`, `before`, `after`), or the row itself, either of
them with its schema around it (`schema`, `payload`); a record without value, or `op` d, deletes the
row of its key. What is none of this, or has no key, changes nothing and is told.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyarrow import fs as filesystems
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from penstock.jobs.inputs import Side, read_side
from penstock.spark.option_values import OptionError

KEPT: Final = 3
KEY: Final = "_key"
SAMPLES: Final = 3
_CURRENT: Final = "_current"
_WRAPPED: Final = "schema string, payload string"
_ENVELOPE: Final = "op string, before string, after string"
_CORRUPT: Final = "_corrupt"


@dataclass(slots=True)
class Applied:
    """What a run did."""

    version: int
    events: int = 0
    rows: int = 0
    path: str = ""
    left_out: int = 0
    """Events that cannot be applied."""
    samples: list[str] = field(default_factory=list)
    """Some of them: partition and offset."""

    def document(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "events": self.events,
            "rows": self.rows,
            "path": self.path,
            "left_out": self.left_out,
            "samples": self.samples,
        }


def apply_changes(
    spark: Any,
    *,
    cluster: Mapping[str, str],
    topic: str,
    schema: str,
    path: str,
    ends: dict[str, int],
) -> Applied:
    """Events up to `ends` (by partition, as text) that the table does not have yet."""
    system, root = _system(path)
    current = _read_current(system, root)
    offsets: dict[str, int] = current.get("offsets", {}) if current else {}
    if current and current.get("topic") != topic:
        raise OptionError(f"{path} is the table of topic {current.get('topic')!r}, not {topic!r}")
    version = int(current["version"]) if current else 0
    done = Applied(version, path=f"{path.rstrip('/')}/v{version:08}")
    if all(offsets.get(part, 0) >= end for part, end in ends.items()):
        done.rows = int(current["rows"]) if current else 0
        return done
    begins = {part: offsets.get(part, -2) for part in ends}
    events = _events(
        read_side(
            spark,
            Side(topic),
            cluster,
            columns=("partition", "offset", "key", "value"),
            startingOffsets=json.dumps({topic: begins}),
            endingOffsets=json.dumps({topic: ends}),
        ),
        schema,
    )
    done.events = int(events.count())
    _leave_out(events.filter("not is_good"), done)
    events = events.filter("is_good")
    newest = Window.partitionBy(KEY).orderBy(F.desc("partition"), F.desc("offset"))
    last = events.withColumn("_rank", F.row_number().over(newest)).filter("_rank = 1")
    table = last.filter("not deleted").select(KEY, "row.*")
    if current:
        before = spark.read.parquet(f"{path.rstrip('/')}/v{version:08}")
        untouched = before.join(last.select(KEY), KEY, "left_anti")
        table = untouched.unionByName(table, allowMissingColumns=True)
    done.version = version + 1
    done.path = f"{path.rstrip('/')}/v{done.version:08}"
    # What a run left behind that died here has no `_current`: it is written anew.
    table.write.mode("overwrite").parquet(done.path)
    done.rows = int(spark.read.parquet(done.path).count())
    _publish(system, root, done, topic, {**offsets, **ends})
    return done


def _events(rows: Any, schema: str) -> Any:
    text = F.col("value").cast("string")
    row_type = StructType.fromDDL(schema).add(_CORRUPT, "string")
    is_wrapped = F.col("_wrapped.schema").isNotNull() & F.col("_wrapped.payload").isNotNull()
    is_envelope = F.col("_envelope.op").isNotNull()
    after = F.when(is_envelope, F.col("_envelope.after")).otherwise(F.col("_body"))
    deleted = F.col("value").isNull() | (is_envelope & (F.col("_envelope.op") == "d"))
    row = F.from_json(F.col("_after"), row_type, {"columnNameOfCorruptRecord": _CORRUPT})
    is_row = F.col("row").isNotNull() & F.col(f"row.{_CORRUPT}").isNull()
    return (
        rows.withColumn("_wrapped", F.from_json(text, _WRAPPED))
        .withColumn("_body", F.when(is_wrapped, F.col("_wrapped.payload")).otherwise(text))
        .withColumn("_envelope", F.from_json("_body", _ENVELOPE))
        .withColumn("_after", after)
        .select(
            F.col("key").cast("string").alias(KEY),
            "partition",
            "offset",
            row.alias("row"),
            F.coalesce(deleted, F.lit(False)).alias("deleted"),
        )
        .withColumn("is_good", F.col(KEY).isNotNull() & (F.col("deleted") | is_row))
        .withColumn("row", F.col("row").dropFields(_CORRUPT))
    )


def _leave_out(bad: Any, done: Applied) -> None:
    done.left_out = int(bad.count())
    if done.left_out:
        first = bad.orderBy("partition", "offset").limit(SAMPLES).collect()
        done.samples = [f"{one['partition']}/{one['offset']}" for one in first]


def read_table(spark: Any, path: str) -> Any:
    """The rows of the version that counts."""
    system, root = _system(path)
    current = _read_current(system, root)
    if current is None:
        raise OptionError(f"{path} is no table of this job: run it first")
    return spark.read.parquet(f"{path.rstrip('/')}/v{current['version']:08}")


def _system(path: str) -> tuple[Any, str]:
    if "://" in path:
        system, root = filesystems.FileSystem.from_uri(path)
        return system, root.rstrip("/")
    return filesystems.LocalFileSystem(), path.rstrip("/")


def _read_current(system: Any, root: str) -> dict[str, Any] | None:
    place = f"{root}/{_CURRENT}"
    if system.get_file_info(place).type != filesystems.FileType.File:
        return None
    with system.open_input_file(place) as file:
        found: dict[str, Any] = json.loads(file.read())
        return found


def _publish(system: Any, root: str, done: Applied, topic: str, offsets: dict[str, int]) -> None:
    document = {
        "version": done.version,
        "topic": topic,
        "offsets": offsets,
        "rows": done.rows,
    }
    temporary = f"{root}/_writing{_CURRENT}"
    with system.open_output_stream(temporary) as file:
        file.write(json.dumps(document).encode())
    system.move(temporary, f"{root}/{_CURRENT}")
    stale = f"{root}/v{done.version - KEPT:08}"
    if system.get_file_info(stale).type == filesystems.FileType.Directory:
        system.delete_dir(stale)
