"""Builds streaming queries of stages: read, parse, apply the user's function, write.

A stage has one query. Its output and its rejected rows are one stream with a column `topic`, so
both are in the same transaction of the sink, and a batch repeated after a crash duplicates neither.
A stage that writes files has a second query for its dead letters; each of the two is exactly once.

A stage that can reject rows has two branches from its source, and reads its records twice: Spark
cannot split a stream.

Lookup tables of stages as DataFrames. A stage that rejects rows reads its tables in every branch,
and a changing table must be the same in all of them. Otherwise a row could be lost: one branch
drops it as unknown, another one as known. Spark runs an identical exchange once for all branches,
but never considers two reads of a data source identical. So `Latest` does not use the data
source: a few rows of numbers go through `mapInArrow`, which reads the partitions of each number;
Spark recognizes that as identical. The topic is read when the batch runs, up to its end at that
time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.app.durations import ms_of
from penstock.pipelines.checkpoints import check_output_folder, end_of_previous_version, path_of
from penstock.pipelines.endpoints import (
    DeltaTable,
    EachBatch,
    Files,
    IcebergTable,
    Latest,
    PipelineError,
    Queue,
    Stored,
    Table,
    Topic,
)
from penstock.pipelines.expectation_checks import check_expectations
from penstock.pipelines.lakehouse import batch_writer, check_target
from penstock.pipelines.pipeline import Pipeline, Stage
from penstock.pipelines.progress import ROWS_IN, ROWS_OUT
from penstock.pipelines.record_columns import (
    COLUMNS,
    RECORD,
    collect_rejected,
    dead_letters_of,
    is_raw,
    output_records,
    parse_json,
    parse_subject,
    split_failures,
    with_record,
)
from penstock.runtime.clock import SystemClock
from penstock.spark.connection import blocking_client
from penstock.spark.key_order import last_of_each_key
from penstock.spark.range_planning import Range
from penstock.spark.schemas.schema_cache import RegistryAddress
from penstock.spark.settings import ClusterAddress, ReadSettings, read_settings
from penstock.spark.sink.commit import finish_intended_commit
from penstock.spark.sink.upsert import exactly_once_batches
from penstock.spark.source.data_source import ranges_of
from penstock.spark.source.queue_stream import RECORDS_MAX as QUEUE_PER_BATCH
from penstock.spark.source.ranged_stream import read_queue, read_stream
from penstock.spark.source.rows import read_all, schema_of

READERS: Final = 4
"""Tasks that read a topic; with a single one Spark would not use an exchange."""


def load_table(spark: Any, table: Table, options: Mapping[str, str]) -> Any:
    """DataFrame of a table; `options` are those of the cluster."""
    if isinstance(table, Stored):
        reader = spark.read.format(table.format)
        return (reader.schema(table.schema) if table.schema else reader).load(table.path)
    raw = _read_topic(spark, table, options)
    last = last_of_each_key(raw.filter("key is not null"), topic=table.topic, ties=table.ties)
    parsed = F.from_json(F.col("value").cast("string"), StructType.fromDDL(table.schema))
    return last.filter("value is not null").select(parsed.alias("_row")).select("_row.*")


def _read_topic(spark: Any, table: Latest, options: Mapping[str, str]) -> Any:
    """DataFrame of all records of the topic, with the columns that their order needs."""
    asked = {
        **options,
        "subscribe": table.topic,
        "isolation.level": "read_committed",
        "columns": "key,value,partition,offset,timestamp",
    }
    settings = read_settings(asked, is_streaming=False)
    schema = schema_of(settings.columns)

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in batch.to_pylist():
                spans = _ranges_of_reader(settings, row["id"])
                yield from read_all(settings, schema, spans)

    return spark.range(0, READERS, 1, READERS).mapInArrow(read, schema)


def _ranges_of_reader(settings: ReadSettings, reader: int) -> list[Range]:
    """Current ranges of the partitions of one reader."""
    client = blocking_client(settings.access)
    spans = client.retry(lambda: ranges_of(client.cluster, settings))
    return [span for span in spans if span.partition % READERS == reader]


DLQ_SUFFIX = ".dlq"
"""Suffix of the checkpoint of a stage's dead-letter query, if it has one."""
_CLIENT_ID = "penstock-pipeline"
_RETRY_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class PipelineEnvironment:
    """Environment of a pipeline: the Spark session, the brokers, the folder of checkpoints."""

    spark: Any
    brokers: str
    checkpoints: str
    per_batch: int | None = None
    """Maximum records in a batch; overrides the stages' settings."""
    registry: str | RegistryAddress | None = field(default=None, repr=False)
    """Schema registry of stages with a subject; may contain a password."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """TLS and SASL settings by the names of Kafka's clients; contains secrets."""

    def options(self) -> dict[str, str]:
        secured = {f"kafka.{name}": value for name, value in self.security.items()}
        return {"brokers": self.brokers, **secured}

    def access(self) -> ClusterAddress:
        """Cluster address for requests outside of Spark."""
        security = tuple(sorted(self.security.items()))
        return ClusterAddress(self.brokers, _CLIENT_ID, _RETRY_TIMEOUT_MS, security)


@dataclass(slots=True)
class BuiltStage:
    """DataFrames of a stage that has not been started."""

    stage: Stage
    good: Any
    bad: Any | None
    """Dead letters; None if the stage rejects no rows."""
    counts: Any | None = None
    """Counts of its expectations, for a batch."""


class QueryBuilder:
    def __init__(self, pipeline: Pipeline, environment: PipelineEnvironment) -> None:
        self._pipeline = pipeline
        self._environment = environment
        self._schemas: dict[str, StructType] = {}
        """Schema of the JSON values that stages of this pipeline write, by topic."""

    def build(self, stage: Stage, part: str = "") -> BuiltStage:
        """Builds a stage; `part` is the checkpoint suffix of its dead-letter query."""
        source = self._read(stage, part)
        rows = source.observe(ROWS_IN, F.count(F.lit(1)).alias("rows"))
        tables = {name: self._table(stage, name, table) for name, table in stage.tables.items()}
        with collect_rejected() as rejected:
            shaped = self._parse(stage, with_record(rows))
            result = stage.function(shaped, **tables)
            if result is None or not hasattr(result, "columns"):
                raise PipelineError(
                    f"stage {stage.name!r} must return a DataFrame; its function returned "
                    f"{result!r}"
                )
            checked = check_expectations(result, stage)
        bad = None
        for branch in rejected:
            dead = dead_letters_of(branch, stage)
            bad = dead if bad is None else bad.unionByName(dead)
        if bad is not None and not isinstance(stage.target, Topic):
            _check_tables(stage)
        return BuiltStage(stage, checked.rows, bad, checked.counts)

    # -- input --------------------------------------------------------------------------------

    def _table(self, stage: Stage, name: str, table: Table) -> Any:
        """DataFrame of a stage's lookup table."""
        return load_table(self._environment.spark, table, self._environment.options())

    def _read(self, stage: Stage, part: str) -> Any:
        per_batch = self._environment.per_batch or stage.per_batch
        if isinstance(stage.source, Queue):
            if not isinstance(stage.target, Topic):
                raise PipelineError(
                    f"stage {stage.name!r} reads a queue and must write to a topic: its dead "
                    "letters need the same query, because a queue delivers a record to one query"
                )
            return read_queue(
                self._environment.spark,
                **{
                    **self._environment.options(),
                    "queue": stage.source.name,
                    "columns": COLUMNS,
                    "group": stage.group,
                    "maxOffsetsPerTrigger": min(per_batch, QUEUE_PER_BATCH),
                    **stage.options,
                },
            )
        # Only the first query commits offsets to the group: the progress of a stage is that of its
        # rows, not of its dead letters.
        commits_offsets = not part or stage.begin == "committed"
        return read_stream(
            self._environment.spark,
            **{
                **self._environment.options(),
                "subscribe": stage.source.name,
                "columns": COLUMNS,
                "isolation.level": "read_committed",
                **({"group": stage.group} if commits_offsets else {}),
                "maxOffsetsPerTrigger": per_batch,
                **self._starting_options(stage, part),
                **stage.options,
            },
        )

    def _starting_options(self, stage: Stage, part: str) -> dict[str, str]:
        """Options for the start of a new checkpoint."""
        if stage.begin in ("earliest", "latest", "committed"):
            return {"startingOffsets": stage.begin}
        if stage.begin is not None:
            at_ms = SystemClock().now_ms() - ms_of(stage.begin)
            strategy = {"startingOffsetsByTimestampStrategy": "latest"}
            return {"startingTimestamp": str(max(0, at_ms)), **strategy}
        if stage.version > 1:
            end = end_of_previous_version(
                self._environment.checkpoints, stage, part, self._is_written
            )
            if end is not None:
                return {"startingOffsets": end}
        return {"startingOffsets": "earliest"}

    def _is_written(self, query_id: str, batch: int) -> bool:
        """True if a batch is committed though Spark's commit log lacks it.

        Finishes the commit of a batch with a stored commit intent.
        """
        client = blocking_client(self._environment.access())
        try:
            return client.run(finish_intended_commit(client, query_id, batch)) is not None
        except ConnectionAbortedError:
            raise PipelineError(
                f"batch {batch} of the previous version is only partly written: run that version "
                "once more to finish it, then run this one"
            ) from None

    def _parse(self, stage: Stage, rows: Any) -> Any:
        """Adds the fields of the values as columns; rejects malformed values."""
        if stage.subject is not None:
            if self._environment.registry is None:
                raise PipelineError(
                    f"stage {stage.name!r} reads subject {stage.subject!r}: pass the schema "
                    "registry with --registry"
                )
            return split_failures(parse_subject(rows, stage.subject, self._environment.registry))
        schema = self._schema(stage)
        return rows if schema is None else split_failures(parse_json(rows, schema))

    def _schema(self, stage: Stage) -> StructType | None:
        """Schema of the stage, else that of the stage that writes its source."""
        if stage.schema is not None:
            return StructType.fromDDL(stage.schema)
        topic = str(stage.source)
        if topic not in self._schemas:
            writer = self._pipeline.writer_of(topic)
            if writer is None:
                return None
            written = self.build(writer).good
            if is_raw(written.columns):
                return None
            self._schemas[topic] = _nullable(written.drop(RECORD).schema)
        return self._schemas[topic]

    # -- output -------------------------------------------------------------------------------

    def start(self, built: BuiltStage, *, once: bool) -> list[Any]:
        """Starts the query or the two queries of a stage."""
        stage = built.stage
        checkpoint = path_of(self._environment.checkpoints, stage)
        target = stage.target
        if isinstance(target, Topic):
            rows = output_records(built.good, stage, target.name)
            if built.bad is not None:
                rows = rows.unionByName(built.bad)
            is_bad = F.col("topic") == stage.dlq
            counted = rows.observe(
                ROWS_OUT,
                F.count_if(~is_bad).alias("rows"),
                F.count_if(is_bad).alias("bad"),
            )
            return [self._start_topics(counted, stage, checkpoint, stage.mode, once=once)]
        rows = built.good.drop(RECORD).observe(ROWS_OUT, F.count(F.lit(1)).alias("rows"))
        writer = rows.writeStream.outputMode(stage.mode)
        # The second query has its own source: it may lag behind the first one.
        bad = None if built.bad is None else self.build(stage, DLQ_SUFFIX).bad
        if isinstance(target, Files):
            check_output_folder(stage, target.path, checkpoint)
            writer = writer.format(target.format).option("path", target.path)
            if target.partition_by:
                writer = writer.partitionBy(*target.partition_by)
        elif isinstance(target, EachBatch):
            writer = writer.foreachBatch(target.function)
        else:
            self._check_table_target(stage, target)
            writer = writer.foreachBatch(batch_writer(target))
        started = [_start(writer, stage, checkpoint, once=once)]
        if bad is not None:
            counted = bad.observe(ROWS_OUT, F.count(F.lit(1)).alias("bad"))
            second = checkpoint + DLQ_SUFFIX
            started.append(self._start_topics(counted, stage, second, "append", once=once))
        return started

    def _check_table_target(self, stage: Stage, target: DeltaTable | IcebergTable) -> None:
        if not hasattr(self._environment.spark, "sparkContext"):
            raise PipelineError(
                f"stage {stage.name!r} writes to {target}, which needs a session with --master: "
                "Spark Connect does not provide the query id of a batch"
            )
        check_target(target, stage.name)

    def _start_topics(
        self, rows: Any, stage: Stage, checkpoint: str, mode: str, *, once: bool
    ) -> Any:
        """Starts a query that writes rows with a topic column exactly once.

        Spark's Python sinks support only the mode append; in other modes each batch is written
        separately, with the same ledger.
        """
        options = {**self._environment.options(), "includeTimestamp": "true"}
        writer = rows.writeStream.outputMode(mode)
        if mode == "append":
            writer = writer.format("penstock").options(**options)
        else:
            if not hasattr(self._environment.spark, "sparkContext"):
                raise PipelineError(
                    f"stage {stage.name!r}: mode {mode!r} needs a session with --master: Spark "
                    "Connect does not provide the query id of a batch"
                )
            writer = writer.foreachBatch(exactly_once_batches(options))
        return _start(writer, stage, checkpoint, once=once)


def _check_tables(stage: Stage) -> None:
    for name, table in stage.tables.items():
        if isinstance(table, Latest):
            raise PipelineError(
                f"stage {stage.name!r} has the changing table {name!r} and must write to a topic: "
                "otherwise its dead letters are a second query, which may see another version of "
                "the table; write to a topic and load that in the next stage"
            )


def _start(writer: Any, stage: Stage, checkpoint: str, *, once: bool) -> Any:
    name = checkpoint.rsplit("/", 1)[-1]
    writer = writer.option("checkpointLocation", checkpoint).queryName(f"{stage.id} {name}")
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{ms_of(stage.every)} milliseconds").start()


def _nullable(schema: StructType) -> StructType:
    """Schema with all fields nullable: values read from a topic may lack any field."""
    made = StructType()
    for one in schema.fields:
        made = made.add(one.name, one.dataType, True)
    return made
