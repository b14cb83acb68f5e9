"""Job `cdc`: applies change events, or events of an outbox, to a table.

A table is a folder of versions. A version holds all rows as of certain offsets; the file `_current`
names the valid version and its offsets, and is replaced atomically. So a run that dies leaves the
old version, and a repeated run reads the same events again: every event is applied once. The last
`VERSIONS_KEPT` versions remain for readers that still use them.

The last event of each key and partition is in `_state/<version>`, because the newest event of a key
depends on all partitions that ever had the key (`spark.key_order`). So the result does not depend
on how often the job runs. Deleted keys stay there until no event is expected that is older than
their deletion (`DELETED_KEPT_MS`). Rows of a table without state are older than every event.

Events are JSON values: Debezium's envelope (`op`, `before`, `after`) or the row itself, both
optionally wrapped with a schema (`schema`, `payload`). A record without value, or `op` d, deletes
the row of its key. Other records, and records without key, are skipped and reported.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyarrow import fs as filesystems
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from penstock.jobs.inputs import JobInput, read_input
from penstock.spark.connection import blocking_client
from penstock.spark.key_order import FAIL, check_ties, last_of_each_partition, mark_newest
from penstock.spark.option_values import OptionError
from penstock.spark.settings import read_settings
from penstock.spark.topics import known_topic_ids, partitions_to_read

VERSIONS_KEPT: Final = 3
DELETED_KEPT_MS: Final = 7 * 86_400_000
"""Age of a deletion, relative to the newest event, at which its key is forgotten: one week."""
KEY: Final = "_key"
SAMPLES_MAX: Final = 3
_CURRENT: Final = "_current"
_STATE: Final = "_state"
_PARTITION: Final = "_partition"
_OFFSET: Final = "_offset"
_TIMESTAMP: Final = "_timestamp_ms"
_DIGEST: Final = "_digest"
_DELETED: Final = "_deleted"
_NEWEST: Final = "_newest"
_INTERNAL: Final = (_PARTITION, _OFFSET, _TIMESTAMP, _DIGEST, _DELETED, _NEWEST)
"""Columns of the state beside those of the table."""
_WRAPPED: Final = "schema string, payload string"
_ENVELOPE: Final = "op string, before string, after string"
_CORRUPT: Final = "_corrupt"


@dataclass(slots=True)
class ApplyResult:
    """Result of a run."""

    version: int
    events: int = 0
    rows: int = 0
    path: str = ""
    left_out: int = 0
    """Number of skipped events, which cannot be applied."""
    samples: list[str] = field(default_factory=list)
    """Partition and offset of some skipped events."""

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
    ties: str = FAIL,
) -> ApplyResult:
    """Applies events up to `ends` (offset by partition number) that the table does not have yet.

    `ties` is the rule of `spark.key_order` for equal timestamps in different partitions.
    """
    check_ties(ties)
    system, root = _system(path)
    current = _read_current(system, root)
    offsets: dict[str, int] = current.get("offsets", {}) if current else {}
    if current and current.get("topic") != topic:
        raise OptionError(
            f"{path} is the table of topic {current.get('topic')!r}, not {topic!r}: choose another "
            "path"
        )
    topic_id = _topic_id(cluster, topic)
    if current and topic_id and current.get("topic_id", topic_id) != topic_id:
        raise OptionError(
            f"topic {topic!r} was deleted and created again since its events were applied to "
            f"{path}: choose another path"
        )
    version = int(current["version"]) if current else 0
    done = ApplyResult(version, path=f"{path.rstrip('/')}/v{version:08}")
    if all(offsets.get(part, 0) >= end for part, end in ends.items()):
        done.rows = int(current["rows"]) if current else 0
        return done
    begins = {part: offsets.get(part, -2) for part in ends}
    events = _events(
        read_input(
            spark,
            JobInput(topic),
            cluster,
            columns=("partition", "offset", "timestamp", "key", "value"),
            startingOffsets=json.dumps({topic: begins}),
            endingOffsets=json.dumps({topic: ends}),
        ),
        schema,
    )
    done.events = int(events.count())
    _report_skipped(events.filter("not is_good"), done)
    events = events.filter("is_good")
    state = events.select(KEY, "row.*", *_INTERNAL[:-1])
    if current:
        before = _read_state(spark, system, root, path, version)
        state = before.unionByName(state, allowMissingColumns=True)
    done.version = version + 1
    done.path = f"{path.rstrip('/')}/v{done.version:08}"
    # Overwrites the folders of a run that died before it replaced `_current`.
    state_path = f"{path.rstrip('/')}/{_STATE}/v{done.version:08}"
    _last_events(state, topic, ties).write.mode("overwrite").parquet(state_path)
    newest = spark.read.parquet(state_path).filter(f"{_NEWEST} and not {_DELETED}")
    newest.drop(*_INTERNAL).write.mode("overwrite").parquet(done.path)
    done.rows = int(spark.read.parquet(done.path).count())
    _publish(system, root, done, topic, {**offsets, **ends}, topic_id)
    return done


def _topic_id(cluster: Mapping[str, str], topic: str) -> str | None:
    """Current id of the topic; None if the brokers have none."""
    settings = read_settings({**cluster, "subscribe": topic}, is_streaming=False)
    client = blocking_client(settings.access)
    client.retry(lambda: partitions_to_read(client.cluster, settings))
    return known_topic_ids(client.cluster, [topic]).get(topic)


def _read_state(spark: Any, system: Any, root: str, path: str, version: int) -> Any:
    """State of a version; of a table without state, its rows as events of unknown age."""
    name = f"{_STATE}/v{version:08}"
    if system.get_file_info(f"{root}/{name}").type == filesystems.FileType.Directory:
        return spark.read.parquet(f"{path.rstrip('/')}/{name}").drop(_NEWEST)
    rows = spark.read.parquet(f"{path.rstrip('/')}/v{version:08}")
    return rows.withColumn(_DELETED, F.lit(False))


def _last_events(events: Any, topic: str, ties: str) -> Any:
    """Last event of each key and partition, with the newest of each key marked."""
    last = last_of_each_partition(events, KEY, _PARTITION, _OFFSET)
    marked = mark_newest(
        last,
        _NEWEST,
        topic=topic,
        ties=ties,
        key=KEY,
        partition=_PARTITION,
        offset=_OFFSET,
        timestamp=_TIMESTAMP,
        digest=_DIGEST,
    )
    of_key = Window.partitionBy(KEY)
    is_deleted = F.max(F.col(_NEWEST) & F.col(_DELETED)).over(of_key)
    newest_ms = events.agg(F.max(_TIMESTAMP)).collect()[0][0] or 0
    is_old = F.max(_TIMESTAMP).over(of_key) < newest_ms - DELETED_KEPT_MS
    marked = marked.withColumn("_is_forgotten", is_deleted & is_old)
    return marked.filter("not _is_forgotten").drop("_is_forgotten")


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
            F.col("partition").alias(_PARTITION),
            F.col("offset").alias(_OFFSET),
            F.unix_millis("timestamp").alias(_TIMESTAMP),
            F.xxhash64("value").alias(_DIGEST),
            row.alias("row"),
            F.coalesce(deleted, F.lit(False)).alias(_DELETED),
        )
        .withColumn("is_good", F.col(KEY).isNotNull() & (F.col(_DELETED) | is_row))
        .withColumn("row", F.col("row").dropFields(_CORRUPT))
    )


def _report_skipped(bad: Any, done: ApplyResult) -> None:
    done.left_out = int(bad.count())
    if done.left_out:
        first = bad.orderBy(_PARTITION, _OFFSET).limit(SAMPLES_MAX).collect()
        done.samples = [f"{one[_PARTITION]}/{one[_OFFSET]}" for one in first]


def read_table(spark: Any, path: str) -> Any:
    """Rows of the current version."""
    system, root = _system(path)
    current = _read_current(system, root)
    if current is None:
        raise OptionError(f"{path} is not a table of this job: run the job first")
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


def _publish(
    system: Any,
    root: str,
    done: ApplyResult,
    topic: str,
    offsets: dict[str, int],
    topic_id: str | None = None,
) -> None:
    document = {
        "version": done.version,
        "topic": topic,
        "offsets": offsets,
        "rows": done.rows,
        **({"topic_id": topic_id} if topic_id else {}),
    }
    temporary = f"{root}/_writing{_CURRENT}"
    with system.open_output_stream(temporary) as file:
        file.write(json.dumps(document).encode())
    system.move(temporary, f"{root}/{_CURRENT}")
    for stale in (f"v{done.version - VERSIONS_KEPT:08}", f"{_STATE}/v{done.version - 1:08}"):
        if system.get_file_info(f"{root}/{stale}").type == filesystems.FileType.Directory:
            system.delete_dir(f"{root}/{stale}")
