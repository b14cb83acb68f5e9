"""The options of the data source: their names, what they may hold, and what a typo is answered.

Names are those of Spark's own Kafka source, so that a job moves by changing its format name, and
a few of ours. Spark hands over names in lower case. Every option is a row of `OPTIONS`; a name
that is not there is refused with the nearest one that is. Options of Kafka's client that mean
nothing here are accepted by name (`IGNORED`), because a job that moves has them.

Which offsets an option means is `positions`' to find out; here it is only text that parses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

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

READ: Final = "read"
WRITE: Final = "write"
BOTH: Final = "read and write"

SECURITY: Final = "security"
"""Where `read_options` puts what it found of TLS and SASL: pairs, sorted."""

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
        "where to find the cluster: host:port, several separated by commas",
        ("bootstrap.servers", "brokers"),
    ),
    Option(
        "queue",
        READ,
        names,
        None,
        "a queue to read, several separated by commas: streams only, and instead of subscribe",
    ),
    Option("subscribe", READ, names, None, "topics to read, separated by commas", ("topics",)),
    Option(
        "subscribePattern",
        READ,
        text,
        None,
        "a regular expression: topics whose whole name it matches",
    ),
    Option("assign", READ, assignment, None, 'partitions to read: {"orders":[0,1]}'),
    Option(
        "startingOffsets",
        READ,
        offsets("earliest", "latest", "committed"),
        None,
        "earliest, latest, committed (what the group has), or JSON with an offset per partition; "
        "a stream takes it only on its first start. Earliest for a batch, latest for a stream",
    ),
    Option(
        "endingOffsets", READ, offsets("latest"), "latest", "where a batch ends: latest, or JSON"
    ),
    Option("startingTimestamp", READ, number(0), None, "begin at the first record this old, in ms"),
    Option("endingTimestamp", READ, number(0), None, "end before the first record this old, in ms"),
    Option(
        "startingOffsetsByTimestamp", READ, offsets(), None, "a timestamp per partition, as JSON"
    ),
    Option("endingOffsetsByTimestamp", READ, offsets(), None, "a timestamp per partition, as JSON"),
    Option(
        "startingOffsetsByTimestampStrategy",
        READ,
        choice("error", "latest"),
        "error",
        "what to do where no record is as young as the starting timestamp",
    ),
    Option(
        "maxOffsetsPerTrigger",
        READ,
        number(1),
        None,
        "at most this many records in one batch",
        ("maxRowsPerTrigger",),
    ),
    Option("minOffsetsPerTrigger", READ, number(1), None, "wait until there are this many records"),
    Option(
        "maxTriggerDelay", READ, delay, "15m", "wait no longer than this for minOffsetsPerTrigger"
    ),
    Option(
        "minPartitions", READ, number(1), None, "at least this many tasks, however few partitions"
    ),
    Option(
        "maxRecordsPerPartition", READ, number(1), None, "at most this many records in one task"
    ),
    Option("failOnDataLoss", READ, flag, "true", "fail when records are gone that should be read"),
    Option(
        "isolation.level",
        READ,
        choice("read_committed", "read_uncommitted"),
        "read_uncommitted",
        "whether records of open and aborted transactions are seen",
        ("kafka.isolation.level",),
    ),
    Option("includeHeaders", READ, flag, "false", "whether there is a column headers"),
    Option(
        "columns",
        READ,
        names,
        None,
        "only these columns, in this order; the others are not decoded",
    ),
    Option(
        "group",
        READ,
        text,
        None,
        "the group whose offsets show how far a stream is; of a queue, the share group",
        ("kafka.group.id", "group.id"),
    ),
    Option(
        "renewFor",
        READ,
        delay,
        "1h",
        "how long records of a queue are held for a batch that is not done",
    ),
    Option(
        "fetchBytes",
        READ,
        number(1, 256 << 20),
        str(4 << 20),
        "how much one fetch asks for",
        ("kafka.max.partition.fetch.bytes",),
    ),
    Option("retryTimeout", BOTH, delay, "2m", "how long brokers may be away before a task fails"),
    Option("kafka.client.id", BOTH, text, "penstock-spark", "how brokers' logs name this client"),
    Option(
        "emit",
        READ,
        choice("records", "ranges"),
        "records",
        "ranges: offset ranges only, for read_stream",
    ),
    Option("topic", WRITE, text, None, "where all rows go; without it there is a column topic"),
    Option(
        "delivery",
        WRITE,
        choice(EXACTLY_ONCE, AT_LEAST_ONCE),
        None,
        "exactly-once: in transactions, each batch once (a stream's default). at-least-once: "
        "faster to be seen, and a task that is run again writes again",
    ),
    Option(
        "txnAppId",
        WRITE,
        text,
        None,
        "of a batch written exactly once: the name of who writes it to the topic, as in "
        "foreachBatch",
    ),
    Option(
        "txnVersion",
        WRITE,
        number(0),
        None,
        "the number of that batch: one that was written before is not written again",
    ),
    Option(
        "transaction.timeout.ms",
        WRITE,
        number(1_000, (1 << 31) - 1),
        "600000",
        "how long a batch may take from its first write to its commit",
        ("kafka.transaction.timeout.ms",),
    ),
    Option(
        "compression.type",
        WRITE,
        choice("none", "gzip", "snappy", "lz4", "zstd"),
        "none",
        "the codec of written batches",
        ("kafka.compression.type",),
    ),
    Option(
        "batchBytes",
        WRITE,
        number(1_024, 16 << 20),
        str(512 << 10),
        "a written batch is about this large",
        ("kafka.batch.size",),
    ),
    Option(
        "includeTimestamp",
        WRITE,
        flag,
        "false",
        "whether the column timestamp is written, not the time of writing",
    ),
)

IGNORED: Final = frozenset(
    {
        # What Spark itself adds, and what only its Kafka source needs.
        *("path", "checkpointlocation", "queryname", "groupidprefix", "fetchoffset.numretries"),
        *("fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms", "minpartitionsperexecutor"),
        # Of Kafka's client: there is no member of a group here, and no buffer to be sized.
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
    """What the options say, by the options' own names; None where neither given nor default.

    Raises OptionError for a name that is not known, is given twice or belongs to the other side.
    """
    found: dict[str, Any] = {}
    security: dict[str, str] = {}
    for key, value in sorted(given.items()):
        folded = key.lower()
        if folded in IGNORED:
            continue
        if is_security(folded.removeprefix(_KAFKA)):
            name = _secured(key)
            if name in security:
                raise OptionError(f"option 'kafka.{name}' is given twice, once as {key!r}")
            security[name] = str(value)
            continue
        option = _KNOWN.get(folded)
        if option is None:
            raise OptionError(_unknown(key, side))
        if option.side not in (side, BOTH):
            raise OptionError(f"option {option.name!r} is for {option.side}s, not for a {side}")
        if option.name in found:
            raise OptionError(f"option {option.name!r} is given twice, once as {key!r}")
        found[option.name] = option.parse(option.name, str(value))
    for option in OPTIONS:
        if option.side in (side, BOTH) and option.name not in found:
            default = option.default
            found[option.name] = None if default is None else option.parse(option.name, default)
    if found["kafka.bootstrap.servers"] is None:
        raise OptionError("option 'kafka.bootstrap.servers' is missing: where is the cluster?")
    found[SECURITY] = tuple(sorted(security.items()))
    return found


def _unknown(key: str, side: str) -> str:
    fitting = [option for option in OPTIONS if option.side in (side, BOTH)]
    spellings = [name for option in fitting for name in (option.name, *option.aliases)]
    close = nearest(key, spellings)
    hint = f"did you mean {close!r}?" if close else "the options are listed in docs/how-to/spark.md"
    return f"unknown option {key!r}: {hint}"


def _secured(key: str) -> str:
    """The name without its prefix, as clients know it. Values are never told: some are secrets."""
    name = key.lower().removeprefix(_KAFKA)
    name = SPELLINGS.get(name, name)
    if name in NAMES:
        return name
    if name in _STORE_PASSWORDS:
        raise OptionError(
            f"option {key!r}: only PEM files are read, and they have no such password; convert the "
            "store with keytool and openssl, and give kafka.ssl.truststore.location, or "
            "kafka.ssl.keystore.location with kafka.ssl.key.password"
        )
    close = nearest(name, NAMES)
    hint = f"did you mean 'kafka.{close}'?" if close else f"there are {', '.join(NAMES)}"
    raise OptionError(f"unknown option {key!r}: {hint}")
