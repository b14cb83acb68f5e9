"""Checked and typed settings of a read or a write; small and picklable.

Created from Spark's options wherever Spark creates a data source, and sent to the tasks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.client.consumer.fetched import READ_COMMITTED, READ_UNCOMMITTED
from penstock.client.metadata import TopicPartition
from penstock.spark.option_values import OptionError, nearest
from penstock.spark.options import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    READ,
    SECURITY,
    WRITE,
    read_options,
)
from penstock.spark.source.start_and_end import ReadPosition, ending_position, starting_position
from penstock.wire.compression import Codec

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"

_SOURCES = ("subscribe", "subscribePattern", "assign", "queue")
_TOPIC_ONLY = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "minOffsetsPerTrigger",
    "isolation.level",
)
"""Options without meaning for a queue."""
_CODECS = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Brokers, client id, retry timeout and security settings of a cluster."""

    brokers: str
    client_id: str
    retry_timeout_ms: int
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """TLS and SASL settings by the names of Kafka's clients; hidden because it holds secrets."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    access: ClusterAddress
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    starting: ReadPosition
    ending: ReadPosition
    records_max: int | None
    """maxOffsetsPerTrigger."""
    records_min: int | None
    trigger_delay_ms: int
    tasks_min: int | None
    task_records_max: int | None
    fail_on_data_loss: bool
    isolation_level: int
    columns: tuple[str, ...]
    group: str | None
    fetch_bytes: int
    emits_ranges: bool
    is_queue: bool = False
    """True while the topics are read through the share group `group`."""
    renew_for_ms: int = 0
    """Maximum time for which leases of a batch are renewed."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    access: ClusterAddress
    topic: str | None
    is_exactly_once: bool
    txn_timeout_ms: int
    codec: Codec
    batch_bytes: int
    keeps_timestamp: bool
    write_id: tuple[str, int] | None = None
    """Application that writes a batch (and its topic, if the option is set), and batch number."""


def read_settings(given: Mapping[str, str], *, is_streaming: bool) -> ReadSettings:
    found = read_options(given, READ)
    chosen = [name for name in _SOURCES if found[name]]
    if len(chosen) != 1:
        stated = f"{' and '.join(map(repr, chosen))} are set" if chosen else "none is set"
        raise OptionError(
            f"set exactly one of 'subscribe', 'subscribePattern', 'assign' and 'queue'; {stated}"
        )
    if found["queue"]:
        _check_queue(given, found["group"], is_streaming=is_streaming)
    assigned = tuple(
        TopicPartition(topic, partition)
        for topic, partitions in (found["assign"] or {}).items()
        for partition in partitions
    )
    if found["startingOffsets"] == "committed" and not found["group"]:
        raise OptionError("startingOffsets 'committed' needs the option 'group'")
    return ReadSettings(
        access=_access(found),
        topics=tuple(
            sorted({*(found["subscribe"] or found["queue"] or ()), *(w.topic for w in assigned)})
        ),
        pattern=found["subscribePattern"],
        assigned=assigned,
        starting=starting_position(found, is_streaming=is_streaming),
        ending=ending_position(found, given, is_streaming=is_streaming),
        records_max=found["maxOffsetsPerTrigger"],
        records_min=found["minOffsetsPerTrigger"],
        trigger_delay_ms=found["maxTriggerDelay"],
        tasks_min=found["minPartitions"],
        task_records_max=found["maxRecordsPerPartition"],
        fail_on_data_loss=found["failOnDataLoss"],
        isolation_level=(
            READ_COMMITTED if found["isolation.level"] == "read_committed" else READ_UNCOMMITTED
        ),
        columns=_columns(found["columns"], found["includeHeaders"]),
        group=found["group"],
        fetch_bytes=found["fetchBytes"],
        emits_ranges=found["emit"] == "ranges",
        is_queue=bool(found["queue"]),
        renew_for_ms=found["renewFor"],
    )


def _check_queue(given: Mapping[str, str], group: str | None, *, is_streaming: bool) -> None:
    if not is_streaming:
        raise OptionError(
            "option 'queue' is not available for a batch: use readStream, with "
            "trigger(availableNow=True) to read the records available now"
        )
    if not group:
        raise OptionError("missing option 'group': a queue is read through a share group")
    folded = {name.lower() for name in given}
    for name in _TOPIC_ONLY:
        if name.lower() in folded:
            raise OptionError(
                f"option {name!r} does not apply to a queue, which delivers unacknowledged records"
            )


def selected_columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Columns of a read, None if it emits ranges; the same for batches and streams."""
    found = read_options(given, READ)
    if found["emit"] == "ranges":
        return None
    return _columns(found["columns"], found["includeHeaders"])


def write_settings(given: Mapping[str, str], *, is_streaming: bool) -> WriteSettings:
    found = read_options(given, WRITE)
    delivery = found["delivery"] or (EXACTLY_ONCE if is_streaming else AT_LEAST_ONCE)
    return WriteSettings(
        access=_access(found),
        topic=found["topic"],
        is_exactly_once=delivery == EXACTLY_ONCE,
        txn_timeout_ms=found["transaction.timeout.ms"],
        codec=_CODECS[found["compression.type"]],
        batch_bytes=found["batchBytes"],
        keeps_timestamp=found["includeTimestamp"],
        write_id=_write_id(
            found, is_exactly_once=delivery == EXACTLY_ONCE, is_streaming=is_streaming
        ),
    )


def _write_id(
    found: Mapping[str, Any], *, is_exactly_once: bool, is_streaming: bool
) -> tuple[str, int] | None:
    name, number = found["txnAppId"], found["txnVersion"]
    if name is None and number is None:
        return None
    if name is None or number is None:
        raise OptionError("options 'txnAppId' and 'txnVersion' must be set together")
    if is_streaming:
        raise OptionError(
            "options 'txnAppId' and 'txnVersion' apply to batches: a stream has its own id"
        )
    if not is_exactly_once:
        raise OptionError("options 'txnAppId' and 'txnVersion' need delivery 'exactly-once'")
    # A batch written to two topics counts as two writes.
    return name if found["topic"] is None else f"{name}.{found['topic']}", number


def _access(found: Mapping[str, object]) -> ClusterAddress:
    timeout_ms = found["retryTimeout"]
    assert isinstance(timeout_ms, int)
    security = found[SECURITY]
    assert isinstance(security, tuple)
    return ClusterAddress(
        str(found["kafka.bootstrap.servers"]), str(found["kafka.client.id"]), timeout_ms, security
    )


def _columns(wanted: tuple[str, ...] | None, with_headers: bool) -> tuple[str, ...]:
    if wanted is None:
        return (*COLUMNS, HEADERS) if with_headers else COLUMNS
    for name in wanted:
        if name not in (*COLUMNS, HEADERS):
            close = nearest(name, (*COLUMNS, HEADERS))
            hint = f"did you mean {close!r}?" if close else f"columns: {', '.join(COLUMNS)}"
            raise OptionError(f"option 'columns': unknown column {name!r}; {hint}")
    if len(set(wanted)) != len(wanted):
        raise OptionError("option 'columns' names a column twice")
    return wanted
