"""Checked and typed settings of a read or a write; small and picklable.

Created from Spark's options wherever Spark creates a data source, and sent to the tasks.

Options of the data source: names, parsers and defaults. Names are those of Spark's own Kafka
source, so that a job migrates by changing its format name, plus a few of Penstock's. Spark passes
names in lower case. Every option is a row of `OPTIONS`; an unknown name is refused with the most
similar known one. Options of Kafka's client that have no meaning here are accepted by name
(`IGNORED`), because jobs that migrate have them.

This module only parses text; `source.start_and_end` resolves options to offsets.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client.consumer.fetched import READ_COMMITTED, READ_UNCOMMITTED
from penstock.client.metadata import TopicPartition
from penstock.client.security_settings import ALIASES as SPELLINGS
from penstock.client.security_settings import NAMES, is_security
from penstock.spark.option_values import (
    OptionError,
    assignment,
    brokers,
    choice,
    delay,
    flag,
    names,
    nearest,
    number,
    offsets,
    text,
)
from penstock.spark.source.start_and_end import ReadPosition, ending_position, starting_position
from penstock.wire.compression import Codec

READ: Final = "read"
WRITE: Final = "write"
BOTH: Final = "read and write"

SECURITY: Final = "security"
"""Key under which `read_options` returns the TLS and SASL options, as sorted pairs."""

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    side: str
    parse: Callable[[str, str], Any]
    default: str | None
    help: str
    aliases: tuple[str, ...] = ()


OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "kafka.bootstrap.servers",
        BOTH,
        brokers,
        None,
        "brokers of the cluster: host:port, several separated by commas",
        ("bootstrap.servers", "brokers"),
    ),
    Option(
        "queue",
        READ,
        names,
        None,
        "queues to read, separated by commas, instead of subscribe; streams only",
    ),
    Option("subscribe", READ, names, None, "topics to read, separated by commas", ("topics",)),
    Option(
        "subscribePattern",
        READ,
        text,
        None,
        "a regular expression that must match the whole topic name",
    ),
    Option("assign", READ, assignment, None, 'partitions to read: {"orders":[0,1]}'),
    Option(
        "startingOffsets",
        READ,
        offsets("earliest", "latest", "committed"),
        None,
        "earliest, latest, committed (offsets of the group), or JSON with an offset per partition; "
        "partitions that are not named begin at the earliest. A stream uses it only on its first "
        "start. Default: earliest for a batch, latest for a stream",
    ),
    Option(
        "endingOffsets",
        READ,
        offsets("latest"),
        "latest",
        "end of a batch: latest, or JSON; partitions that are not named end at the latest",
    ),
    Option(
        "startingTimestamp",
        READ,
        number(0),
        None,
        "start at the first record with at least this timestamp in ms",
    ),
    Option(
        "endingTimestamp",
        READ,
        number(0),
        None,
        "end before the first record with at least this timestamp in ms",
    ),
    Option(
        "startingOffsetsByTimestamp",
        READ,
        offsets(),
        None,
        "a starting timestamp per partition, as JSON",
    ),
    Option(
        "endingOffsetsByTimestamp",
        READ,
        offsets(),
        None,
        "an ending timestamp per partition, as JSON",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        READ,
        choice("error", "latest"),
        "error",
        "behavior for a partition whose records are all older than the starting timestamp",
    ),
    Option(
        "maxOffsetsPerTrigger",
        READ,
        number(1),
        None,
        "maximum number of records in one batch",
        ("maxRowsPerTrigger",),
    ),
    Option(
        "minOffsetsPerTrigger", READ, number(1), None, "wait until this many records are available"
    ),
    Option("maxTriggerDelay", READ, delay, "15m", "maximum wait for minOffsetsPerTrigger"),
    Option(
        "minPartitions", READ, number(1), None, "minimum number of tasks; splits partitions if few"
    ),
    Option(
        "maxRecordsPerPartition", READ, number(1), None, "maximum number of records in one task"
    ),
    Option(
        "failOnDataLoss", READ, flag, "true", "fail if records to be read were deleted or truncated"
    ),
    Option(
        "isolation.level",
        READ,
        choice("read_committed", "read_uncommitted"),
        "read_committed",
        "read_committed hides records of open and aborted transactions; read_uncommitted shows "
        "them, sooner",
        ("kafka.isolation.level",),
    ),
    Option("includeHeaders", READ, flag, "false", "true adds the column headers"),
    Option(
        "columns",
        READ,
        names,
        None,
        "columns to read, in this order; others are not decoded",
    ),
    Option(
        "group",
        READ,
        text,
        None,
        "the consumer group that gets the stream's offsets; for a queue, the share group",
        ("kafka.group.id", "group.id"),
    ),
    Option(
        "renewFor",
        READ,
        delay,
        "1h",
        "maximum time for which leases are renewed while a batch of a queue runs",
    ),
    Option(
        "fetchBytes",
        READ,
        number(1, 256 << 20),
        str(4 << 20),
        "maximum bytes of one fetch",
        ("kafka.max.partition.fetch.bytes",),
    ),
    Option(
        "retryTimeout", BOTH, delay, "2m", "maximum unavailability of brokers before a task fails"
    ),
    Option("kafka.client.id", BOTH, text, "penstock-spark", "client id in the brokers' logs"),
    Option(
        "emit",
        READ,
        choice("records", "ranges"),
        "records",
        "ranges emits offset ranges instead of records, for read_stream",
    ),
    Option(
        "topic",
        BOTH,
        text,
        None,
        "topic of all written rows; without it, rows need a column topic. A read without a source "
        "reads it",
    ),
    Option(
        "delivery",
        WRITE,
        choice(EXACTLY_ONCE, AT_LEAST_ONCE),
        None,
        "exactly-once: in transactions, each batch once (default of a stream). at-least-once: "
        "records are visible earlier, and a task that is retried writes again",
    ),
    Option(
        "txnAppId",
        WRITE,
        text,
        None,
        "name of the application that writes a batch exactly once to the topic, as in foreachBatch",
    ),
    Option(
        "txnVersion",
        WRITE,
        number(0),
        None,
        "number of that batch: a batch that was written before is not written again",
    ),
    Option(
        "transaction.timeout.ms",
        WRITE,
        number(1_000, (1 << 31) - 1),
        "600000",
        "maximum time of a batch from its first write to its commit, in ms",
        ("kafka.transaction.timeout.ms",),
    ),
    Option(
        "compression.type",
        WRITE,
        choice("none", "gzip", "snappy", "lz4", "zstd"),
        "none",
        "compression of written batches",
        ("kafka.compression.type",),
    ),
    Option(
        "batchBytes",
        WRITE,
        number(1_024, 16 << 20),
        str(512 << 10),
        "approximate size of a written batch",
        ("kafka.batch.size",),
    ),
    Option(
        "includeTimestamp",
        WRITE,
        flag,
        "false",
        "true writes the column timestamp instead of the current time",
    ),
)

IGNORED: Final = frozenset(
    {
        # Added by Spark itself, or needed only by its Kafka source.
        *("path", "checkpointlocation", "queryname", "groupidprefix", "fetchoffset.numretries"),
        *("fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms", "minpartitionsperexecutor"),
        # Options of Kafka's client: this source has neither group members nor buffers to size.
        *("kafka.session.timeout.ms", "kafka.heartbeat.interval.ms", "kafka.max.poll.records"),
        *("kafka.max.poll.interval.ms", "kafka.request.timeout.ms", "kafka.fetch.min.bytes"),
        *("kafka.fetch.max.bytes", "kafka.fetch.max.wait.ms", "kafka.receive.buffer.bytes"),
        *("kafka.send.buffer.bytes", "kafka.metadata.max.age.ms", "kafka.retries", "kafka.acks"),
        *("kafka.linger.ms", "kafka.buffer.memory", "kafka.delivery.timeout.ms"),
        *("kafka.enable.idempotence", "kafka.max.block.ms", "kafka.max.request.size"),
        *("kafka.max.in.flight.requests.per.connection", "kafka.default.api.timeout.ms"),
        *("kafka.connections.max.idle.ms", "kafka.retry.backoff.ms", "kafka.check.crcs"),
        *("kafka.allow.auto.create.topics", "kafka.client.dns.lookup", "kafka.client.rack"),
    }
)

_KAFKA: Final = "kafka."
_STORE_PASSWORDS: Final = ("ssl.truststore.password", "ssl.keystore.password")

_KNOWN: Final[Mapping[str, Option]] = {
    spelling.lower(): option for option in OPTIONS for spelling in (option.name, *option.aliases)
}


def read_options(given: Mapping[str, str], side: str) -> dict[str, Any]:
    """Parsed values by canonical option name; None for an option without value and default.

    Raises OptionError for a name that is unknown, is given twice or belongs to the other side.
    """
    found: dict[str, Any] = {}
    security: dict[str, str] = {}
    for key, value in sorted(given.items()):
        folded = key.lower()
        if folded in IGNORED:
            continue
        if is_security(folded.removeprefix(_KAFKA)):
            name = _security_name(key)
            if name in security:
                raise OptionError(f"option 'kafka.{name}' is given twice, once as {key!r}")
            security[name] = str(value)
            continue
        option = _KNOWN.get(folded)
        if option is None:
            raise OptionError(_unknown(key, side))
        if option.side not in (side, BOTH):
            raise OptionError(f"option {option.name!r} applies to a {option.side}, not to a {side}")
        if option.name in found:
            raise OptionError(f"option {option.name!r} is given twice, once as {key!r}")
        found[option.name] = option.parse(option.name, str(value))
    for option in OPTIONS:
        if option.side in (side, BOTH) and option.name not in found:
            default = option.default
            found[option.name] = None if default is None else option.parse(option.name, default)
    if found["kafka.bootstrap.servers"] is None:
        raise OptionError("missing option 'kafka.bootstrap.servers': pass host:port of a broker")
    found[SECURITY] = tuple(sorted(security.items()))
    return found


def option_of(name: str) -> Option | None:
    """Option with this name or alias, in any case; None for other names."""
    return _KNOWN.get(name.lower())


def _unknown(key: str, side: str) -> str:
    fitting = [option for option in OPTIONS if option.side in (side, BOTH)]
    spellings = [name for option in fitting for name in (option.name, *option.aliases)]
    close = nearest(key, spellings)
    hint = f"did you mean {close!r}?" if close else "the options are listed in docs/how-to/spark.md"
    return f"unknown option {key!r}: {hint}"


def _security_name(key: str) -> str:
    """Name without its prefix, as in Kafka's clients. Errors omit values: some are secrets."""
    name = key.lower().removeprefix(_KAFKA)
    name = SPELLINGS.get(name, name)
    if name in NAMES:
        return name
    if name in _STORE_PASSWORDS:
        raise OptionError(
            f"unsupported option {key!r}: stores must be PEM files, which have no store password; "
            "convert the store with keytool and openssl, and set kafka.ssl.truststore.location, or "
            "kafka.ssl.keystore.location with kafka.ssl.key.password"
        )
    close = nearest(name, NAMES)
    hint = f"did you mean 'kafka.{close}'?" if close else f"known options: {', '.join(NAMES)}"
    raise OptionError(f"unknown option {key!r}: {hint}")


COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"

_SOURCES = ("subscribe", "subscribePattern", "assign", "queue", "topic")
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
            "set exactly one of 'subscribe', 'subscribePattern', 'assign', 'queue' and 'topic'; "
            f"{stated}"
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
        topics=tuple(sorted({*_named_topics(found), *(where.topic for where in assigned)})),
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


def _named_topics(found: Mapping[str, Any]) -> tuple[str, ...]:
    if found["topic"]:
        return (found["topic"],)
    return found["subscribe"] or found["queue"] or ()


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
