"""Makes streaming queries of stages: read, parse, the user's function, write.

One query a stage. What it writes and what it turns away are rows of one stream with a column
`topic`, so both are in the same transaction of the sink, and a batch that is repeated after a
crash repeats neither. A stage that writes files has a second query for its dead letters: each is
exactly once on its own.

A stage that can turn rows away has two branches from its source, and reads its records twice:
Spark's streams have no way to split one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.app.durations import ms_of
from penstock.pipelines.checkpoints import check_folder, older_end, path_of
from penstock.pipelines.endpoints import EachBatch, Files, Latest, PipelineError, Queue, Topic
from penstock.pipelines.lookup_tables import table_of
from penstock.pipelines.pipeline import Pipeline, Stage
from penstock.pipelines.progress import ROWS_IN, ROWS_OUT
from penstock.pipelines.record_columns import (
    COLUMNS,
    RECORD,
    is_raw,
    letters_of,
    outgoing,
    parse_json,
    parse_subject,
    with_record,
)
from penstock.pipelines.rejects import collecting, split
from penstock.runtime.clock import SystemClock
from penstock.spark.connection import blocking_client
from penstock.spark.schemas.schema_cache import RegistryAddress
from penstock.spark.settings import ClusterAddress
from penstock.spark.sink.commit import finish_intended_commit
from penstock.spark.source.queue_stream import RECORDS_MAX as QUEUE_PER_BATCH
from penstock.spark.source.ranged_stream import read_queue, read_stream

LETTERS = ".dlq"
"""Behind the checkpoint of a stage: that of the query for its dead letters, where it has one."""
_CLIENT_ID = "penstock-pipeline"
_RETRY_TIMEOUT_MS = 60_000
_QUERY_PROPERTY = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a pipeline runs: the session, the brokers, and the folder for checkpoints."""

    spark: Any
    brokers: str
    checkpoints: str
    per_batch: int | None = None
    """At most so many records in a batch, whatever the stages say."""
    registry: str | RegistryAddress | None = field(default=None, repr=False)
    """Where the schema registry is, for stages with a subject; may have a password."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of TLS and SASL, by the names of Kafka's clients; has secrets."""

    def options(self) -> dict[str, str]:
        secured = {f"kafka.{name}": value for name, value in self.security.items()}
        return {"brokers": self.brokers, **secured}

    def access(self) -> ClusterAddress:
        """The way to the brokers for what is asked outside of Spark."""
        security = tuple(sorted(self.security.items()))
        return ClusterAddress(self.brokers, _CLIENT_ID, _RETRY_TIMEOUT_MS, security)


@dataclass(slots=True)
class Built:
    """A stage as DataFrames, not started yet."""

    stage: Stage
    good: Any
    bad: Any | None
    """Letters, or None where the stage turns nothing away."""


class Builder:
    def __init__(self, pipeline: Pipeline, around: Surroundings) -> None:
        self._pipeline = pipeline
        self._around = around
        self._schemas: dict[str, StructType] = {}
        """By topic: what stages of this pipeline write there as JSON."""

    def build(self, stage: Stage, part: str = "") -> Built:
        """`part` is what its checkpoint has behind the name, for the query of its letters."""
        source = self._read(stage, part)
        rows = source.observe(ROWS_IN, F.count(F.lit(1)).alias("rows"))
        options = self._around.options()
        tables = {
            name: table_of(self._around.spark, table, options)
            for name, table in stage.tables.items()
        }
        with collecting() as rejected:
            shaped = self._parsed(stage, with_record(rows))
            result = stage.function(shaped, **tables)
        if result is None or not hasattr(result, "columns"):
            raise PipelineError(
                f"stage {stage.name!r} must return a DataFrame; its function returned {result!r}"
            )
        bad = None
        for branch in rejected:
            letters = letters_of(branch, stage)
            bad = letters if bad is None else bad.unionByName(letters)
        if bad is not None and not isinstance(stage.target, Topic):
            _check_tables(stage)
        return Built(stage, result, bad)

    # -- in -----------------------------------------------------------------------------------

    def _read(self, stage: Stage, part: str) -> Any:
        per_batch = self._around.per_batch or stage.per_batch
        if isinstance(stage.source, Queue):
            if not isinstance(stage.target, Topic):
                raise PipelineError(
                    f"stage {stage.name!r} reads a queue, so it writes to a topic: letters "
                    "need the same query, and a record of a queue goes to one query only"
                )
            return read_queue(
                self._around.spark,
                **{
                    **self._around.options(),
                    "queue": stage.source.name,
                    "columns": COLUMNS,
                    "group": stage.group,
                    "maxOffsetsPerTrigger": min(per_batch, QUEUE_PER_BATCH),
                    **stage.options,
                },
            )
        # How far the stage is, is how far its rows are: the query of its letters says nothing.
        tells = not part or stage.begin == "committed"
        return read_stream(
            self._around.spark,
            **{
                **self._around.options(),
                "subscribe": stage.source.name,
                "columns": COLUMNS,
                "isolation.level": "read_committed",
                **({"group": stage.group} if tells else {}),
                "maxOffsetsPerTrigger": per_batch,
                **self._beginning(stage, part),
                **stage.options,
            },
        )

    def _beginning(self, stage: Stage, part: str) -> dict[str, str]:
        """Where a checkpoint that does not exist yet begins."""
        if stage.begin in ("earliest", "latest", "committed"):
            return {"startingOffsets": stage.begin}
        if stage.begin is not None:
            at_ms = SystemClock().now_ms() - ms_of(stage.begin)
            strategy = {"startingOffsetsByTimestampStrategy": "latest"}
            return {"startingTimestamp": str(max(0, at_ms)), **strategy}
        if stage.version > 1:
            end = older_end(self._around.checkpoints, stage, part, self._is_written)
            if end is not None:
                return {"startingOffsets": end}
        return {"startingOffsets": "earliest"}

    def _is_written(self, query_id: str, batch: int) -> bool:
        """Whether a batch is in the topics though Spark has not noted it; finishes one that is to
        be."""
        client = blocking_client(self._around.access())
        try:
            return client.run(finish_intended_commit(client, query_id, batch)) is not None
        except ConnectionAbortedError:
            raise PipelineError(
                f"batch {batch} of the older version is written in part: run the older version "
                "once more, which finishes it, and then this one"
            ) from None

    def _parsed(self, stage: Stage, rows: Any) -> Any:
        """With the fields of the values as columns; bad ones are turned away."""
        if stage.subject is not None:
            if self._around.registry is None:
                raise PipelineError(
                    f"stage {stage.name!r} reads subject {stage.subject!r}: say where the registry "
                    "is, with --registry"
                )
            return split(parse_subject(rows, stage.subject, self._around.registry))
        schema = self._schema(stage)
        return rows if schema is None else split(parse_json(rows, schema))

    def _schema(self, stage: Stage) -> StructType | None:
        """What the stage says, or what the one before writes."""
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

    # -- out ----------------------------------------------------------------------------------

    def start(self, built: Built, *, once: bool) -> list[Any]:
        """Starts the stage's query, or its two queries."""
        stage = built.stage
        checkpoint = path_of(self._around.checkpoints, stage)
        target = stage.target
        if isinstance(target, Topic):
            rows = outgoing(built.good, stage, target.name)
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
        # The second query has a source of its own: it need not have come as far as the first one.
        bad = None if built.bad is None else self.build(stage, LETTERS).bad
        if isinstance(target, Files):
            check_folder(stage, target.path, checkpoint)
            writer = writer.format(target.format).option("path", target.path)
            if target.partition_by:
                writer = writer.partitionBy(*target.partition_by)
        else:
            assert isinstance(target, EachBatch)
            writer = writer.foreachBatch(target.function)
        started = [_start(writer, stage, checkpoint, once=once)]
        if bad is not None:
            counted = bad.observe(ROWS_OUT, F.count(F.lit(1)).alias("bad"))
            place = checkpoint + LETTERS
            started.append(self._start_topics(counted, stage, place, "append", once=once))
        return started

    def _start_topics(
        self, rows: Any, stage: Stage, checkpoint: str, mode: str, *, once: bool
    ) -> Any:
        """Rows with a topic column into the sink, exactly once.

        Spark lets a Python sink only append; with other modes the batches are written one by one,
        with the same ledger.
        """
        options = {**self._around.options(), "includeTimestamp": "true"}
        writer = rows.writeStream.outputMode(mode)
        if mode == "append":
            writer = writer.format("penstock").options(**options)
        else:
            if not hasattr(self._around.spark, "sparkContext"):
                raise PipelineError(
                    f"stage {stage.name!r}: mode {mode!r} needs a session with --master, because "
                    "Spark Connect does not tell which query a batch belongs to"
                )
            once_each = {**options, "delivery": "exactly-once"}
            writer = writer.foreachBatch(_batch_writer(once_each))
        return _start(writer, stage, checkpoint, once=once)


def _check_tables(stage: Stage) -> None:
    for name, table in stage.tables.items():
        if isinstance(table, Latest):
            raise PipelineError(
                f"stage {stage.name!r} has the table {name!r}, which changes, and does not write "
                "to a topic: its dead letters are a second query, to which the table may be "
                "another one; write to a topic, and load that in the next stage"
            )


def _batch_writer(options: dict[str, str]) -> Callable[[Any, int], None]:
    def write(batch: Any, number: int) -> None:
        # The id that the checkpoint keeps; Spark runs this in the query's own thread.
        query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_PROPERTY)
        assert query_id is not None
        writer = batch.write.format("penstock").options(**options)
        writer.option("txnAppId", query_id).option("txnVersion", number).mode("append").save()

    return write


def _start(writer: Any, stage: Stage, checkpoint: str, *, once: bool) -> Any:
    name = checkpoint.rsplit("/", 1)[-1]
    writer = writer.option("checkpointLocation", checkpoint).queryName(f"{stage.id} {name}")
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{ms_of(stage.every)} milliseconds").start()


def _nullable(schema: StructType) -> StructType:
    """What came out of a topic may lack any field."""
    made = StructType()
    for one in schema.fields:
        made = made.add(one.name, one.dataType, True)
    return made
