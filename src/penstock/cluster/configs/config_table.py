"""Table of all configs: Kafka 4.3's topic, group and broker configs, and Penstock's own.

Owns: name, type, default, limits, documentation, synonyms and mutability of every config.
Invariants: names, types and limits are Kafka 4.3's; a topic config's `synonyms` are the broker
configs that supply its default, in Kafka's order. A row says so if its default differs from
Kafka's. `flush.policy` is Penstock's own.
Elsewhere: reading values (`config_types`) and choosing between them (`effective_configs`).
"""

from collections.abc import Iterable

from penstock.cluster.configs.config_types import (
    COUNTS_BY_ADDRESS,
    GZIP_LEVEL,
    KEY_PAIRS,
    NETWORKS,
    OFFSET_RESET,
    THROTTLED,
    UNLIMITED_OR_POSITIVE,
    Config,
    ConfigType,
    Limit,
    Scope,
    Synonym,
    UpdateMode,
    at_least,
    between,
    items_of,
    one_of,
    one_of_any_case,
)

BOOLEAN, STRING, INT, SHORT = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
)
LONG, DOUBLE, LIST, PASSWORD = (
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
LONG_MAX = str(2**63 - 1)
INT_MAX = str(2**31 - 1)
SEGMENT_BYTES_MIN = 1024 * 1024

GROUP_COMMIT = "group-commit"
PAGE_CACHE = "page-cache"

_CODECS = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMP_TYPES = one_of("CreateTime", "LogAppendTime")
_CLEANUP = items_of("compact", "delete")
_STRATEGY_NAMES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_STRATEGIES = one_of(
    *_STRATEGY_NAMES,
    *(f"io.confluent.kafka.serializers.subject.{name}" for name in _STRATEGY_NAMES),
)
_FLUSH_POLICIES = one_of(GROUP_COMMIT, PAGE_CACHE)

Row = tuple[str, ConfigType, str | None, Limit | None, str]


def _topic(
    name: str,
    kind: ConfigType,
    default: str | None,
    limit: Limit | None,
    doc: str,
    *synonyms: str | Synonym,
    is_inert: bool = False,
    is_internal: bool = False,
) -> Config:
    return Config(
        name,
        kind,
        default,
        limit,
        doc,
        scope=Scope.TOPIC,
        mode=UpdateMode.CLUSTER_WIDE,
        synonyms=tuple(s if isinstance(s, Synonym) else Synonym(s) for s in synonyms),
        is_inert=is_inert,
        is_internal=is_internal,
    )


TOPIC_CONFIGS: tuple[Config, ...] = (
    _topic(
        "cleanup.policy", LIST, "delete", _CLEANUP,
        "Removal of old segments: by age and size (delete), of records with a newer record of the "
        "same key (compact), or both.",
        "log.cleanup.policy",
    ),
    _topic(
        "compression.gzip.level", INT, "-1", GZIP_LEVEL,
        "Level used when compression.type is gzip.",
        "compression.gzip.level",
    ),
    _topic(
        "compression.lz4.level", INT, "9", between(1, 17),
        "Level used when compression.type is lz4.",
        "compression.lz4.level",
    ),
    _topic(
        "compression.type", STRING, "producer", _CODECS,
        "Codec of stored batches; 'producer' keeps the producer's codec.",
        "compression.type",
    ),
    _topic(
        "compression.zstd.level", INT, "3", between(-131072, 22),
        "Level used when compression.type is zstd.",
        "compression.zstd.level",
    ),
    _topic(
        "confluent.key.schema.validation", BOOLEAN, "false", None,
        "Requires keys to be written with a schema that is registered for them. Confluent's name.",
    ),
    _topic(
        "confluent.key.subject.name.strategy", STRING, "TopicNameStrategy", _STRATEGIES,
        "Naming of the subject that keys' schemas are registered under. Confluent's name.",
    ),
    _topic(
        "confluent.value.schema.validation", BOOLEAN, "false", None,
        "Requires values to be written with a schema that is registered for them. Confluent's "
        "name.",
    ),
    _topic(
        "confluent.value.subject.name.strategy", STRING, "TopicNameStrategy", _STRATEGIES,
        "Naming of the subject that values' schemas are registered under. Confluent's name.",
    ),
    _topic(
        "delete.retention.ms", LONG, "86400000", at_least(0),
        "Time that a compacted topic keeps tombstones, so that consumers can see the deletion.",
        "log.cleaner.delete.retention.ms",
    ),
    _topic(
        "encryption.enable", BOOLEAN, "false", None,
        "Encrypts records on disk as they are appended. Existing records stay as they are until "
        "retention or compaction reaches them. Needs encryption.kek.source. Penstock's own.",
        "encryption.enable",
    ),
    _topic(
        "file.delete.delay.ms", LONG, "60000", at_least(0),
        "Time that a removed segment's file stays on disk for reads under way.",
        "log.segment.delete.delay.ms",
    ),
    _topic(
        "flush.messages", LONG, LONG_MAX, at_least(1),
        "Kafka's flush by record count; see flush.policy.",
        "log.flush.interval.messages", is_inert=True,
    ),
    _topic(
        "flush.ms", LONG, LONG_MAX, at_least(0),
        "Kafka's flush by age; see flush.policy.",
        "log.flush.interval.ms", "log.flush.scheduler.interval.ms", is_inert=True,
    ),
    _topic(
        "flush.policy", STRING, GROUP_COMMIT, _FLUSH_POLICIES,
        "group-commit: a write is acknowledged after it is on disk. page-cache: after it is in "
        "the page cache, so a power cut may lose what the kernel had not written (about 30 s). "
        "Penstock's own.",
        "flush.policy",
    ),
    _topic(
        "follower.replication.throttled.replicas", LIST, "", THROTTLED,
        "Replicas whose follower side is throttled: partition:broker pairs, or *.",
    ),
    _topic(
        "index.interval.bytes", INT, "4096", at_least(0),
        "Bytes of log between two entries of the offset index.",
        "log.index.interval.bytes",
    ),
    _topic(
        "internal.segment.bytes", INT, None, at_least(1),
        "Segment size without the lower limit of segment.bytes; for tests.",
        is_internal=True,
    ),
    _topic(
        "leader.replication.throttled.replicas", LIST, "", THROTTLED,
        "Replicas whose leader side is throttled: partition:broker pairs, or *.",
    ),
    _topic(
        "local.retention.bytes", LONG, "-2", at_least(-2),
        "Bytes kept on local disk when a topic is tiered; -2 means retention.bytes.",
        "log.local.retention.bytes", is_inert=True,
    ),
    _topic(
        "local.retention.ms", LONG, "-2", at_least(-2),
        "Time kept on local disk when a topic is tiered; -2 means retention.ms.",
        "log.local.retention.ms", is_inert=True,
    ),
    _topic(
        "max.backlog.bytes", LONG, "-1", at_least(-1),
        "Limit of the bytes of a partition that some group has not finished with (all bytes, if no "
        "group has committed an offset there): above it producers are blocked or rejected, see "
        "max.backlog.policy; -1 means no limit. Penstock's own.",
    ),
    _topic(
        "max.backlog.policy", STRING, "block", one_of("block", "reject"),
        "Response to producers of a partition above max.backlog.bytes: an error that they retry "
        "until it shrinks or their timeout ends (block), or one that fails (reject). Penstock's "
        "own.",
    ),
    _topic(
        "max.compaction.lag.ms", LONG, LONG_MAX, at_least(1),
        "Longest time a record may stay uncompacted.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    _topic(
        "max.message.bytes", INT, "1048588", at_least(0),
        "Largest record batch the topic accepts, after compression.",
        "message.max.bytes",
    ),
    _topic(
        "message.timestamp.after.max.ms", LONG, "3600000", at_least(0),
        "Longest time by which a record's timestamp may be ahead of the broker's clock.",
        "log.message.timestamp.after.max.ms",
    ),
    _topic(
        "message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0),
        "Longest time by which a record's timestamp may be behind the broker's clock.",
        "log.message.timestamp.before.max.ms",
    ),
    _topic(
        "message.timestamp.type", STRING, "CreateTime", _TIMESTAMP_TYPES,
        "Timestamp of a record: the producer's time, or the time of its append.",
        "log.message.timestamp.type",
    ),
    _topic(
        "min.cleanable.dirty.ratio", DOUBLE, "0.5", between(0, 1),
        "Share of a log that must be uncompacted before it is compacted.",
        "log.cleaner.min.cleanable.ratio",
    ),
    _topic(
        "min.compaction.lag.ms", LONG, "0", at_least(0),
        "Shortest time a record stays uncompacted.",
        "log.cleaner.min.compaction.lag.ms",
    ),
    _topic(
        "min.insync.replicas", INT, "1", at_least(1),
        "Replicas that must have a record on disk before acks=all is answered.",
        "min.insync.replicas",
    ),
    _topic(
        "preallocate", BOOLEAN, "false", None,
        "Allocates segment files in full when they are created.",
        "log.preallocate", is_inert=True,
    ),
    _topic(
        "queue.dead.letter.topic", STRING, "", None,
        "Dead-letter topic of this topic's records, for every share group; empty: as the group "
        "says. Penstock's own.",
    ),
    _topic(
        "queue.dedup.scope", STRING, "partition", one_of("partition", "key"),
        "Scope of a penstock-dedup-id: the whole partition, or only records of the same key "
        "(DeduplicationScope=messageGroup of SQS). Penstock's own.",
    ),
    _topic(
        "queue.dedup.window.ms", LONG, "300000", between(0, 86_400_000),
        "Time after a record in which another one with the same penstock-dedup-id is not delivered "
        "to share groups; 0 turns that off. Penstock's own.",
    ),
    _topic(
        "queue.delivery.count.limit", INT, "0", between(0, 32_767),
        "Deliveries after which a share group dead-letters a record of this topic; 0: as the group "
        "says. Penstock's own.",
    ),
    _topic(
        "queue.expired.dead.letter", BOOLEAN, "true", None,
        "Copies records that expire before a share group has finished with them to its dead-letter "
        "topic. Penstock's own.",
    ),
    _topic(
        "queue.order", STRING, "none", one_of("none", "key", "partition"),
        "Order in which share groups deliver the topic's records: none, one record at a time of "
        "each key, or one at a time. Penstock's own.",
    ),
    _topic(
        "remote.log.copy.disable", BOOLEAN, "false", None,
        "Stops copying to tiered storage.", is_inert=True,
    ),
    _topic(
        "remote.log.delete.on.disable", BOOLEAN, "false", None,
        "Deletes tiered data when tiering is switched off.", is_inert=True,
    ),
    _topic(
        "remote.storage.enable", BOOLEAN, "false", None,
        "Tiered storage, which this broker does not have: only false is allowed.",
    ),
    _topic(
        "retention.ack.groups", LIST, "", None,
        "With retention.mode=ack, the groups that must have finished with a record before it may "
        "be deleted; empty: every group that has committed an offset in the partition. Penstock's "
        "own.",
    ),
    _topic(
        "retention.bytes", LONG, "-1", None,
        "Size of a partition above which its oldest segments are deleted; negative means no limit.",
        "log.retention.bytes",
    ),
    _topic(
        "retention.mode", STRING, "limits", one_of("limits", "ack"),
        "Records that may be deleted besides those that exceed age or size: none (limits), or "
        "those that all groups have finished with (ack). Penstock's own.",
    ),
    _topic(
        "retention.ms", LONG, "604800000", at_least(-1),
        "Age above which segments are deleted; -1 means no limit.",
        "log.retention.ms",
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    _topic(
        "segment.bytes", INT, "1073741824", at_least(SEGMENT_BYTES_MIN),
        "Size at which a new segment begins.",
        "log.segment.bytes",
    ),
    _topic(
        "segment.index.bytes", INT, "10485760", at_least(4),
        "Largest index of one segment.",
        "log.index.size.max.bytes",
    ),
    _topic(
        "segment.jitter.ms", LONG, "0", at_least(0),
        "Random time taken off segment.ms so that segments do not all roll at once.",
        "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", HOUR_MS), is_inert=True,
    ),
    _topic(
        "segment.ms", LONG, "604800000", at_least(1),
        "Age at which a new segment begins.",
        "log.roll.ms", Synonym("log.roll.hours", HOUR_MS),
    ),
    _topic(
        "sqs.attributes", STRING, "", None,
        "Attributes of an SQS queue that have no effect here and are only returned, as a JSON "
        "object. Penstock's own.",
    ),
    _topic(
        "sqs.dedup.by.content", BOOLEAN, "false", None,
        "Gives messages that SQS clients send to this FIFO queue without a deduplication id one "
        "made from their body (ContentBasedDeduplication). Penstock's own.",
    ),
    _topic(
        "sqs.delay.seconds", INT, "0", between(0, 900),
        "Delay of the delivery of messages that SQS clients send, unless the request says "
        "otherwise (DelaySeconds). Penstock's own.",
    ),
    _topic(
        "sqs.group", STRING, "sqs", None,
        "The share group with which SQS clients receive the topic's records. Penstock's own.",
    ),
    _topic(
        "sqs.message.bytes.max", INT, "1048576", between(1_024, 1_048_576),
        "Largest message that SQS clients may send, body and attributes (MaximumMessageSize). "
        "Penstock's own.",
    ),
    _topic(
        "sqs.receive.wait.seconds", INT, "0", between(0, 20),
        "Time that an SQS client's receive waits for a message, unless the request says otherwise "
        "(ReceiveMessageWaitTimeSeconds). Penstock's own.",
    ),
    _topic(
        "sqs.tags", STRING, "", None,
        "Tags of an SQS queue, as a JSON object. Penstock's own.",
    ),
    _topic(
        "sqs.visibility.timeout.seconds", INT, "30", between(0, 43_200),
        "Time that an SQS client holds a received message, unless the request says otherwise "
        "(VisibilityTimeout). Penstock's own.",
    ),
    _topic(
        "unclean.leader.election.enable", BOOLEAN, "false", None,
        "Allows a replica that may lack acknowledged records to lead when no other is left.",
        "unclean.leader.election.enable",
    ),
)  # fmt: skip


_GROUP_INERT = ("share.assignment.interval.ms", "streams.")
"""Prefixes of group configs without effect: there are no streams groups, and members of share
groups get their partitions at once."""


def _group(row: Row, synonym: str | None) -> Config:
    name, kind, default, limit, doc = row
    synonyms = (Synonym(synonym),) if synonym else ()
    is_inert = name.startswith(_GROUP_INERT)
    mode = UpdateMode.CLUSTER_WIDE
    return Config(name, kind, default, limit, doc, Scope.GROUP, mode, synonyms, is_inert)


GROUP_CONFIGS: tuple[Config, ...] = tuple(
    _group(row, synonym)
    for row, synonym in (
        (("consumer.assignment.interval.ms", INT, "0", at_least(0),
          "Shortest time between two assignments of a consumer group (KIP-1263). Kafka's default "
          "is 1000; ours assigns at once."),
         "group.consumer.assignment.interval.ms"),
        (("consumer.heartbeat.interval.ms", INT, "1000", at_least(1),
          "Interval of a consumer group member's heartbeats."),
         "group.consumer.heartbeat.interval.ms"),
        (("consumer.session.timeout.ms", INT, "45000", at_least(1),
          "Time without a heartbeat after which a consumer group removes a member."),
         "group.consumer.session.timeout.ms"),
        (("errors.deadletterqueue.enable", BOOLEAN, "true", None,
          "Copies records that a share group dead-letters to its dead-letter topic. "
          "Penstock's own."), None),
        (("errors.deadletterqueue.topic.name", STRING, "", None,
          "Dead-letter topic of a share group; empty: the record's topic with .dlq appended. "
          "KIP-1191's name."), None),
        (("share.assignment.interval.ms", INT, "1000", at_least(0),
          "Shortest time between two assignments of a share group."),
         "group.share.assignment.interval.ms"),
        (("share.auto.offset.reset", STRING, "latest", OFFSET_RESET,
          "Start of a share group in a partition without state."), None),
        (("share.delivery.count.limit", INT, "5", at_least(2),
          "Deliveries after which a share group dead-letters a record."),
         "group.share.delivery.count.limit"),
        (("share.heartbeat.interval.ms", INT, "5000", at_least(1),
          "Interval of a share group member's heartbeats."),
         "group.share.heartbeat.interval.ms"),
        (("share.isolation.level", STRING, "read_committed",
          one_of("read_committed", "read_uncommitted"),
          "With read_uncommitted a share group receives records of open and aborted transactions, "
          "which is Kafka's default."), None),
        (("share.partition.max.record.locks", INT, "200000", at_least(100),
          "Records of one partition a share group may have in flight; Kafka's default is 2000."),
         "group.share.partition.max.record.locks"),
        (("share.record.lock.duration.ms", INT, "30000", at_least(1000),
          "Time that a member of a share group holds a record before it is redelivered."),
         "group.share.record.lock.duration.ms"),
        (("share.renew.acknowledge.enable", BOOLEAN, "true", None,
          "Allows members to extend their lease on a record."), None),
        (("share.retry.backoff.max.ms", INT, "60000", at_least(0),
          "Longest delay before a record that was released, or whose lease expired, is "
          "redelivered. Penstock's own."), "group.share.retry.backoff.max.ms"),
        (("share.retry.backoff.ms", INT, "-1", at_least(-1),
          "Delay before the second delivery; doubles with each further one, plus up to 100 % at "
          "random. 0: none. -1: none for records that Kafka's clients release, or whose leases "
          "expire, as in Kafka, and 1000 for records that HTTP, penstock.Client and workers "
          "release without a delay of their own. Penstock's own."),
         "group.share.retry.backoff.ms"),
        (("share.session.timeout.ms", INT, "45000", at_least(1),
          "Time without a heartbeat after which a share group removes a member."),
         "group.share.session.timeout.ms"),
        (("streams.heartbeat.interval.ms", INT, "5000", at_least(1),
          "Interval of a streams group member's heartbeats."),
         "group.streams.heartbeat.interval.ms"),
        (("streams.assignment.interval.ms", INT, "1000", at_least(0),
          "Shortest time between two assignments of a streams group."),
         "group.streams.assignment.interval.ms"),
        (("streams.initial.rebalance.delay.ms", INT, "3000", at_least(0),
          "Time that a new streams group waits for more members."),
         "group.streams.initial.rebalance.delay.ms"),
        (("streams.num.standby.replicas", INT, "0", at_least(0),
          "Standby tasks of a streams group."),
         "group.streams.num.standby.replicas"),
        (("streams.session.timeout.ms", INT, "45000", at_least(1),
          "Time without a heartbeat after which a streams group removes a member."),
         "group.streams.session.timeout.ms"),
    )
)  # fmt: skip


# Broker configs that can change while the broker runs, for the whole cluster or for one broker.
_CLUSTER_WIDE: tuple[Row, ...] = (
    ("audit.enable", STRING, "auto", one_of("auto", "true", "false"),
     "Writes administrative and denied actions to the topic __audit; auto: if ACLs are in force. "
     "Penstock's own."),
    ("compression.gzip.level", INT, "-1", GZIP_LEVEL, "Default of the topic config."),
    ("compression.lz4.level", INT, "9", between(1, 17), "Default of the topic config."),
    ("compression.type", STRING, "producer", _CODECS, "Default of the topic config."),
    ("compression.zstd.level", INT, "3", between(-131072, 22), "Default of the topic config."),
    ("console.enable", BOOLEAN, "true", None,
     "Serves the console on the HTTP port. Penstock's own."),
    ("console.history.enable", BOOLEAN, "true", None,
     "Keeps rates, lag and queue depths of the last hour and day in memory, for the console: one "
     "sample of the cluster every 30 s, also without viewers. Penstock's own."),
    ("console.read.only", BOOLEAN, "false", None,
     "Makes the console read-only, whatever the user's permissions. Penstock's own."),
    ("cordoned.log.dirs", LIST, "", None,
     "Log directories that get no new replicas, * for all; a node has one (KIP-1066)."),
    ("disk.reserve.bytes", LONG, "67108864", at_least(0),
     "Free space below which producers are refused until there is more. Penstock's own."),
    ("disk.watermark.refuse.percent", DOUBLE, "99", between(1, 100),
     "Disk usage from which producers are refused; 100 turns that off. Penstock's own."),
    ("disk.watermark.slow.percent", DOUBLE, "95", between(1, 100),
     "Disk usage from which producers are slowed; 100 turns that off. Penstock's own."),
    ("encryption.enable", BOOLEAN, "false", None,
     "Default of the topic config, internal topics included. Penstock's own."),
    ("flush.policy", STRING, GROUP_COMMIT, _FLUSH_POLICIES,
     "Default of the topic config. Penstock's own."),
    ("follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0),
     "Bytes a second a throttled follower may fetch."),
    ("group.consumer.assignment.interval.ms", INT, "0", at_least(0),
     "Default of the group config consumer.assignment.interval.ms. Kafka's default is 1000."),
    ("group.share.assignment.interval.ms", INT, "1000", at_least(0),
     "Default of the group config share.assignment.interval.ms."),
    ("group.streams.assignment.interval.ms", INT, "1000", at_least(0),
     "Default of the group config streams.assignment.interval.ms."),
    ("leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0),
     "Bytes a second a leader may send to throttled followers."),
    ("log.cleaner.backoff.ms", LONG, "15000", at_least(0),
     "Pause of the compactor when nothing is dirty."),
    ("log.cleaner.delete.retention.ms", LONG, "86400000", at_least(0),
     "Default of the topic config delete.retention.ms."),
    ("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1),
     "Default of the topic config max.compaction.lag.ms."),
    ("log.cleaner.min.cleanable.ratio", DOUBLE, "0.5", between(0, 1),
     "Default of the topic config min.cleanable.dirty.ratio."),
    ("log.cleaner.min.compaction.lag.ms", LONG, "0", at_least(0),
     "Default of the topic config min.compaction.lag.ms."),
    ("log.cleaner.threads", INT, "1", at_least(0),
     "Logs compacted at once, the dirtiest first; the limit is 8, and 0 compacts none."),
    ("log.cleanup.policy", LIST, "delete", _CLEANUP,
     "Default of the topic config cleanup.policy."),
    ("log.flush.interval.messages", LONG, LONG_MAX, at_least(1),
     "Default of the topic config flush.messages."),
    ("log.flush.interval.ms", LONG, None, at_least(0), "Default of the topic config flush.ms."),
    ("log.index.interval.bytes", INT, "4096", at_least(0),
     "Default of the topic config index.interval.bytes."),
    ("log.index.size.max.bytes", INT, "10485760", at_least(4),
     "Default of the topic config segment.index.bytes."),
    ("log.local.retention.bytes", LONG, "-2", at_least(-2),
     "Default of the topic config local.retention.bytes."),
    ("log.local.retention.ms", LONG, "-2", at_least(-2),
     "Default of the topic config local.retention.ms."),
    ("log.message.timestamp.after.max.ms", LONG, "3600000", at_least(0),
     "Default of the topic config message.timestamp.after.max.ms."),
    ("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0),
     "Default of the topic config message.timestamp.before.max.ms."),
    ("log.message.timestamp.type", STRING, "CreateTime", _TIMESTAMP_TYPES,
     "Default of the topic config message.timestamp.type."),
    ("log.preallocate", BOOLEAN, "false", None, "Default of the topic config preallocate."),
    ("log.retention.ack.interval.ms", LONG, "30000", at_least(100),
     "Interval at which records that all groups have finished with are deleted; Penstock's own."),
    ("log.retention.bytes", LONG, "-1", None, "Default of the topic config retention.bytes."),
    ("log.retention.ms", LONG, None, UNLIMITED_OR_POSITIVE,
     "Default of the topic config retention.ms."),
    ("log.roll.jitter.ms", LONG, None, at_least(0),
     "Default of the topic config segment.jitter.ms."),
    ("log.roll.ms", LONG, None, at_least(1), "Default of the topic config segment.ms."),
    ("log.segment.bytes", INT, "1073741824", at_least(SEGMENT_BYTES_MIN),
     "Default of the topic config segment.bytes."),
    ("log.segment.delete.delay.ms", LONG, "60000", at_least(0),
     "Default of the topic config file.delete.delay.ms."),
    ("max.connection.creation.rate", INT, INT_MAX, at_least(0),
     "New connections a second the broker accepts."),
    ("max.connections", INT, "10000", at_least(0),
     "Connections open at once. Kafka's default has no limit."),
    ("max.connections.per.ip", INT, "2000", at_least(0),
     "Connections open at once from one address. Kafka's default has no limit."),
    ("max.connections.per.ip.overrides", STRING, "", COUNTS_BY_ADDRESS,
     "Exceptions to max.connections.per.ip: address:count, separated by commas."),
    ("message.max.bytes", INT, "1048588", at_least(0),
     "Default of the topic config max.message.bytes."),
    ("min.insync.replicas", INT, "1", at_least(1), "Default of the topic config."),
    ("producer.id.expiration.ms", INT, "86400000", at_least(1),
     "Time without a batch after which a partition forgets an idempotent producer."),
    ("transaction.partition.verification.enable", BOOLEAN, "true", None,
     "Checks a transactional write with the coordinator first."),
    ("unclean.leader.election.enable", BOOLEAN, "false", None, "Default of the topic config."),
)  # fmt: skip

_CLUSTER_WIDE_INERT: tuple[Row, ...] = (
    ("background.threads", INT, "10", at_least(1), "Threads for background work."),
    ("group.coordinator.cached.buffer.max.bytes", INT, "1048588", at_least(524288),
     "Largest buffer the group coordinator keeps."),
    ("log.cleaner.dedupe.buffer.size", LONG, "134217728", None, "Memory of the cleaner's map."),
    ("log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", None, "Fill of the cleaner's map."),
    ("log.cleaner.io.buffer.size", INT, "524288", at_least(0), "Memory of the cleaner's I/O."),
    ("log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", None,
     "Bytes a second compaction may read and write."),
    ("metric.reporters", LIST, "", None, "Classes that report metrics."),
    ("num.io.threads", INT, "8", at_least(1), "Threads that handle requests."),
    ("num.network.threads", INT, "3", at_least(1), "Threads that read and write sockets."),
    ("num.recovery.threads.per.data.dir", INT, "2", at_least(1), "Threads that recover logs."),
    ("num.replica.fetchers", INT, "1", at_least(1), "Threads that fetch from one leader."),
    ("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, at_least(0),
     "Bytes a second moved between log directories."),
    ("share.coordinator.cached.buffer.max.bytes", INT, "1048588", at_least(524288),
     "Largest buffer the share coordinator keeps."),
)  # fmt: skip

# Kafka can change these on a running broker; here they are read at start.
_SECURITY: tuple[Row, ...] = (
    ("listener.security.protocol.map", STRING,
     "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", None,
     "Security protocol of each listener name."),
    ("http.hosts", LIST, "", None,
     "Host names accepted on the HTTP port, beside addresses, localhost and names that do not "
     "exist on the internet. Checked only on a loopback port without an authorizer, which pages of "
     "other sites could reach by a name of their own. Penstock's own."),
    ("http.hsts.seconds", LONG, "31536000", at_least(0),
     "Time for which browsers that used the HTTP port over TLS use only TLS for its name, on every "
     "port (Strict-Transport-Security); 0 ends that. Penstock's own."),
    ("http.security.protocol", STRING, "PLAINTEXT", one_of("PLAINTEXT", "SSL"),
     "Protocol of the HTTP port: SSL is TLS, with the certificates of ssl.keystore.location. "
     "Penstock's own."),
    ("http.trusted.proxies", LIST, "", NETWORKS,
     "Addresses and networks of proxies in front of the HTTP port: their X-Forwarded-For names the "
     "client of a request. Penstock's own."),
    ("listeners", LIST, "PLAINTEXT://127.0.0.1:9092", None, "Addresses the broker listens on."),
    ("sasl.enabled.mechanisms", LIST, "SCRAM-SHA-256,SCRAM-SHA-512",
     items_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
     "SASL mechanisms clients may use. Kafka's default, GSSAPI, is not supported."),
    ("sasl.jaas.config", PASSWORD, None, None, "Login of a SASL listener."),
    ("sasl.oauthbearer.clock.skew.seconds", INT, "30", at_least(0),
     "Largest difference to the clocks of token issuers."),
    ("sasl.oauthbearer.expected.audience", LIST, None, None,
     "Accepted audiences of tokens; * accepts any. Needed for OAUTHBEARER."),
    ("sasl.oauthbearer.expected.issuer", STRING, None, None,
     "Accepted issuer of tokens. Needed for OAUTHBEARER."),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, "3600000", at_least(1),
     "Age at which the keys that sign tokens are read again: tokens of a key that is no longer "
     "there are refused from then on."),
    ("sasl.oauthbearer.jwks.endpoint.url", STRING, None, None,
     "Location of the keys that sign tokens: https://... or file:///... . Needed for OAUTHBEARER."),
    ("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, "The claim that names the user."),
    ("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"),
     "Client certificates: required, requested or not asked for."),
    ("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", None, "TLS versions allowed."),
    ("ssl.endpoint.identification.algorithm", STRING, "https", None,
     "Check of the names in certificates between nodes; empty turns it off."),
    ("ssl.key.password", PASSWORD, None, None, "Password of the private key."),
    ("ssl.keystore.certificate.chain", PASSWORD, None, None, "Certificate chain, in PEM."),
    ("ssl.keystore.key", PASSWORD, None, None, "Private key, in PEM."),
    ("ssl.keystore.location", STRING, None, None, "File of the private key and certificate."),
    ("ssl.keystore.password", PASSWORD, None, None, "Password of the key file."),
    ("ssl.keystore.type", STRING, "PEM", None, "Format of the key file."),
    ("ssl.principal.mapping.rules", STRING, "DEFAULT", None,
     "Mapping of a client certificate's name to a principal: RULE:pattern/replacement/[LU], "
     "separated by commas, or DEFAULT."),
    ("ssl.truststore.certificates", PASSWORD, None, None, "Trusted certificates, in PEM."),
    ("ssl.truststore.location", STRING, None, None, "File of trusted certificates."),
    ("ssl.truststore.type", STRING, "PEM", None, "Format of the file of certificates."),
)  # fmt: skip

_READ_ONLY: tuple[Row, ...] = (
    ("add.partitions.to.txn.retry.backoff.max.ms", INT, "100", at_least(0),
     "Retry inside the broker."),
    ("add.partitions.to.txn.retry.backoff.ms", INT, "20", at_least(1), "Retry inside the broker."),
    ("admin.password.file", STRING, None, None,
     "File with the password of the user admin in its first line. The user is created at the start "
     "if it does not exist. Penstock's own."),
    ("advertised.listeners", LIST, None, None, "Addresses clients are told to use."),
    ("allow.everyone.if.no.acl.found", BOOLEAN, "false", None,
     "Allows every principal to use resources without ACLs."),
    ("audit.retention.ms", LONG, "7776000000", at_least(1),
     "Retention of the topic __audit, set when it is created; 1 GiB at most. Penstock's own."),
    ("authorizer.class.name", STRING, "", None,
     "Any name, such as Kafka's StandardAuthorizer, enforces ACLs. Empty: every principal may do "
     "everything."),
    ("auto.create.topics.enable", BOOLEAN, "true", None,
     "Creates a missing topic when a client asks for its metadata."),
    ("auto.leader.rebalance.enable", BOOLEAN, "true", None,
     "Moves leadership back to the preferred replica automatically."),
    ("broker.heartbeat.interval.ms", INT, "2000", at_least(100),
     "Interval at which a node renews its lease."),
    ("broker.id", INT, "-1", None, "Old name of node.id."),
    ("broker.rack", STRING, None, None, "Rack of the broker, for placement and reads."),
    ("broker.session.timeout.ms", INT, "6000", at_least(1000),
     "Duration of a node's lease without renewal: a node that hangs that long is replaced, and "
     "refuses writes when it resumes. Kafka's default is 9000."),
    ("connection.failed.authentication.delay.ms", INT, "100", at_least(0),
     "Delay of the reply to a failed login."),
    ("connections.max.idle.ms", LONG, "600000", None,
     "Idle time after which a connection is closed."),
    ("connections.max.reauth.ms", LONG, "0", None,
     "Longest time a login lasts before the client must repeat it; 0 means for ever."),
    ("controlled.shutdown.enable", BOOLEAN, "true", None,
     "Moves leadership away before the node stops."),
    ("default.replication.factor", INT, "1", at_least(1),
     "Replication factor of topics created without one."),
    ("delete.topic.enable", BOOLEAN, "true", None, "Allows topics to be deleted."),
    ("encryption.kek.source", STRING, None, None,
     "Location of the key-encryption keys: file:PATH, env:NAME or command:COMMAND. One key of 32 "
     "bytes per line, in base64 or hexadecimal; the first one is in use. Penstock's own."),
    ("fetch.max.bytes", INT, "8388608", at_least(1024),
     "Largest response to a fetch request. Kafka's default is 55 MiB; this bounds memory."),
    ("group.consumer.assignors", LIST, "uniform,range", None,
     "Assignors of consumer groups; the first is the default."),
    ("group.consumer.heartbeat.interval.ms", INT, "1000", at_least(1),
     "Default of the group config consumer.heartbeat.interval.ms."),
    ("group.consumer.max.assignment.interval.ms", INT, "15000", at_least(0),
     "Largest value of consumer.assignment.interval.ms."),
    ("group.consumer.max.heartbeat.interval.ms", INT, "15000", at_least(1),
     "Largest value of consumer.heartbeat.interval.ms."),
    ("group.consumer.max.session.timeout.ms", INT, "60000", at_least(1),
     "Largest value of consumer.session.timeout.ms."),
    ("group.consumer.max.size", INT, INT_MAX, at_least(1), "Members of a consumer group."),
    ("group.consumer.migration.policy", STRING, "bidirectional",
     one_of_any_case("disabled", "downgrade", "upgrade", "bidirectional"),
     "Directions in which a group may change between the classic and the consumer protocol."),
    ("group.consumer.min.assignment.interval.ms", INT, "0", at_least(0),
     "Smallest value of consumer.assignment.interval.ms."),
    ("group.consumer.min.heartbeat.interval.ms", INT, "1000", at_least(1),
     "Smallest value of consumer.heartbeat.interval.ms."),
    ("group.consumer.min.session.timeout.ms", INT, "45000", at_least(1),
     "Smallest value of consumer.session.timeout.ms."),
    ("group.consumer.session.timeout.ms", INT, "45000", at_least(1),
     "Default of the group config consumer.session.timeout.ms."),
    ("group.coordinator.rebalance.protocols", LIST, "classic,consumer",
     items_of("consumer", "classic", "share", "streams"), "Group protocols switched on."),
    ("group.initial.rebalance.delay.ms", INT, "3000", None,
     "Time that a new group waits for more members before its first assignment."),
    ("group.max.session.timeout.ms", INT, "1800000", None,
     "Largest session timeout a classic member may ask for."),
    ("group.max.size", INT, INT_MAX, at_least(1), "Members of a classic group."),
    ("group.min.session.timeout.ms", INT, "6000", None,
     "Smallest session timeout a classic member may ask for."),
    ("group.share.delivery.count.limit", INT, "5", between(2, 10),
     "Default of the group config share.delivery.count.limit."),
    ("group.share.heartbeat.interval.ms", INT, "5000", at_least(1),
     "Default of the group config share.heartbeat.interval.ms."),
    ("group.share.max.assignment.interval.ms", INT, "15000", at_least(0),
     "Largest value of share.assignment.interval.ms."),
    ("group.share.max.delivery.count.limit", INT, "10", between(5, 25),
     "Largest value of share.delivery.count.limit."),
    ("group.share.max.heartbeat.interval.ms", INT, "15000", at_least(1),
     "Largest value of share.heartbeat.interval.ms."),
    ("group.share.max.partition.max.record.locks", INT, "1000000", between(2000, 1000000),
     "Largest value of share.partition.max.record.locks; Kafka's default is 4000."),
    ("group.share.max.record.lock.duration.ms", INT, "60000", between(30000, 3600000),
     "Largest value of share.record.lock.duration.ms."),
    ("group.share.max.session.timeout.ms", INT, "60000", at_least(1),
     "Largest value of share.session.timeout.ms."),
    ("group.share.max.share.sessions", INT, "2000", at_least(1),
     "Share sessions a broker keeps."),
    ("group.share.max.size", INT, "200", between(1, 1000), "Members of a share group."),
    ("group.share.min.assignment.interval.ms", INT, "0", at_least(0),
     "Smallest value of share.assignment.interval.ms."),
    ("group.share.min.delivery.count.limit", INT, "2", between(2, 5),
     "Smallest value of share.delivery.count.limit."),
    ("group.share.min.heartbeat.interval.ms", INT, "5000", at_least(1),
     "Smallest value of share.heartbeat.interval.ms."),
    ("group.share.min.partition.max.record.locks", INT, "100", between(100, 2000),
     "Smallest value of share.partition.max.record.locks."),
    ("group.share.min.record.lock.duration.ms", INT, "15000", between(1000, 30000),
     "Smallest value of share.record.lock.duration.ms."),
    ("group.share.min.session.timeout.ms", INT, "45000", at_least(1),
     "Smallest value of share.session.timeout.ms."),
    ("group.share.partition.max.record.locks", INT, "200000", between(100, 1000000),
     "Default of the group config share.partition.max.record.locks; Kafka's is 2000."),
    ("group.share.record.lock.duration.ms", INT, "30000", between(1000, 3600000),
     "Default of the group config share.record.lock.duration.ms."),
    ("group.share.retry.backoff.max.ms", INT, "60000", at_least(0),
     "Default of the group config share.retry.backoff.max.ms. Penstock's own."),
    ("group.share.retry.backoff.ms", INT, "-1", at_least(-1),
     "Default of the group config share.retry.backoff.ms. Penstock's own."),
    ("group.share.session.timeout.ms", INT, "45000", at_least(1),
     "Default of the group config share.session.timeout.ms."),
    ("group.streams.heartbeat.interval.ms", INT, "5000", at_least(1),
     "Default of the group config streams.heartbeat.interval.ms."),
    ("group.streams.initial.rebalance.delay.ms", INT, "3000", at_least(0),
     "Time that a new streams group waits for more members."),
    ("group.streams.max.assignment.interval.ms", INT, "15000", at_least(0),
     "Largest value of streams.assignment.interval.ms."),
    ("group.streams.max.heartbeat.interval.ms", INT, "15000", at_least(1),
     "Largest value of streams.heartbeat.interval.ms."),
    ("group.streams.max.session.timeout.ms", INT, "60000", at_least(1),
     "Largest value of streams.session.timeout.ms."),
    ("group.streams.min.assignment.interval.ms", INT, "0", at_least(0),
     "Smallest value of streams.assignment.interval.ms."),
    ("group.streams.min.heartbeat.interval.ms", INT, "5000", at_least(1),
     "Smallest value of streams.heartbeat.interval.ms."),
    ("group.streams.min.session.timeout.ms", INT, "45000", at_least(1),
     "Smallest value of streams.session.timeout.ms."),
    ("group.streams.num.standby.replicas", INT, "0", at_least(0),
     "Default of the group config streams.num.standby.replicas."),
    ("group.streams.session.timeout.ms", INT, "45000", at_least(1),
     "Default of the group config streams.session.timeout.ms."),
    ("inter.broker.listener.name", STRING, None, None, "Listener that brokers use."),
    ("leader.imbalance.check.interval.seconds", LONG, "300", at_least(1),
     "Interval at which the controller moves leadership back to preferred replicas."),
    ("log.cleaner.enable", BOOLEAN, "true", None, "Runs compaction."),
    ("log.dir", LIST, "penstock-data", None, "Directory of the data; log.dirs wins."),
    ("log.dirs", LIST, None, None, "Directory of the data. Only one is allowed."),
    ("log.flush.scheduler.interval.ms", LONG, LONG_MAX, at_least(0),
     "Default of log.flush.interval.ms."),
    ("log.retention.check.interval.ms", LONG, "300000", at_least(1),
     "Interval of retention."),
    ("log.retention.hours", INT, "168", UNLIMITED_OR_POSITIVE, "As log.retention.ms, in hours."),
    ("log.retention.minutes", INT, None, UNLIMITED_OR_POSITIVE, "As log.retention.ms, in minutes."),
    ("log.roll.hours", INT, "168", at_least(1), "As log.roll.ms, in hours."),
    ("log.roll.jitter.hours", INT, "0", at_least(0), "As log.roll.jitter.ms, in hours."),
    ("max.incremental.fetch.session.cache.slots", INT, "1000", at_least(0),
     "Fetch sessions a broker keeps."),
    ("max.request.partition.size.limit", INT, "2000", at_least(1),
     "Partitions that one request may list, or that its response may contain."),
    ("node.id", INT, "1", at_least(0), "Number of this node in its cluster."),
    ("num.partitions", INT, "1", at_least(1),
     "Partitions of topics created without a number of partitions."),
    ("offset.metadata.max.bytes", INT, "4096", None,
     "Largest text a consumer may store with an offset."),
    ("offsets.load.buffer.size", INT, "5242880", at_least(1), "Batch size when loading."),
    ("offsets.retention.check.interval.ms", LONG, "600000", at_least(1),
     "Interval at which expired offsets are removed."),
    ("offsets.retention.minutes", INT, "10080", at_least(1),
     "Retention of the offsets of an empty group."),
    ("offsets.topic.compression.codec", INT, "0", between(0, 4), "Codec of the offsets topic."),
    ("offsets.topic.num.partitions", INT, "50", at_least(1), "Partitions of the offsets topic."),
    ("offsets.topic.replication.factor", SHORT, "3", at_least(1),
     "Replicas of the offsets topic; at most the nodes there are."),
    ("offsets.topic.segment.bytes", INT, "104857600", at_least(SEGMENT_BYTES_MIN),
     "Segment size of the offsets topic."),
    ("producer.id.expiration.check.interval.ms", INT, "600000", at_least(1),
     "Interval at which expired producers are removed."),
    ("process.id", INT, "0", None, "Id of the node's process; set by the node. Penstock's own."),
    ("queued.max.request.bytes", LONG, "134217728", at_least(-1),
     "Bytes of requests held in memory; -1 means no limit, as Kafka's default does."),
    ("quota.window.num", INT, "11", at_least(1), "Windows a quota is measured over."),
    ("quota.window.size.seconds", INT, "1", at_least(1), "Length of a quota's window."),
    ("replica.fetch.max.bytes", INT, "1048576", at_least(0),
     "Bytes of one partition a follower fetches at once."),
    ("replica.fetch.min.bytes", INT, "1", None, "Bytes a follower's fetch waits for."),
    ("replica.fetch.response.max.bytes", INT, "10485760", at_least(0),
     "Bytes a follower fetches at once."),
    ("replica.fetch.wait.max.ms", INT, "500", None, "Longest wait of a follower's fetch."),
    ("replica.high.watermark.checkpoint.interval.ms", LONG, "5000", None,
     "Interval at which the high watermarks of replicas are written to disk."),
    ("replica.lag.time.max.ms", LONG, "30000", None,
     "Lag of a follower after which it leaves the in-sync replicas."),
    ("replica.selector.class", STRING, None, None,
     "Selection of the replica that a consumer should read from; none, or Kafka's "
     "RackAwareReplicaSelector by its full name."),
    ("replica.socket.timeout.ms", INT, "30000", None, "Longest wait of a follower for a response."),
    ("schema.registry.topic.min.isr", SHORT, "2", at_least(1),
     "min.insync.replicas of the schema registry's topic. Penstock's own."),
    ("schema.registry.topic.replication.factor", SHORT, "3", at_least(1),
     "Replicas of the schema registry's topic; at most the nodes there are. Penstock's own."),
    ("schema.registry.topic.segment.bytes", INT, "104857600", at_least(SEGMENT_BYTES_MIN),
     "Segment size of the schema registry's topic. Penstock's own."),
    ("share.coordinator.state.topic.compression.codec", INT, "0", between(0, 4),
     "Codec of the share state topic."),
    ("share.coordinator.state.topic.min.isr", SHORT, "2", at_least(1),
     "min.insync.replicas of the share state topic."),
    ("share.coordinator.state.topic.num.partitions", INT, "50", at_least(1),
     "Partitions of the share state topic."),
    ("share.coordinator.state.topic.replication.factor", SHORT, "3", at_least(1),
     "Replicas of the share state topic; at most the nodes there are."),
    ("share.coordinator.state.topic.segment.bytes", INT, "104857600", at_least(SEGMENT_BYTES_MIN),
     "Segment size of the share state topic."),
    ("socket.listen.backlog.size", INT, "1024", at_least(1),
     "Connections that may wait to be accepted. Kafka's default is 50."),
    ("socket.receive.buffer.bytes", INT, "-1", None,
     "SO_RCVBUF; -1 is the system's. Kafka's default is 102400."),
    ("socket.request.max.bytes", INT, "104857600", at_least(1), "Largest request."),
    ("socket.send.buffer.bytes", INT, "-1", None,
     "SO_SNDBUF; -1 is the system's, which grows as the connection needs. A number limits what a "
     "consumer is sent in one round trip. Kafka's default is 102400."),
    ("sqs.credentials", PASSWORD, None, KEY_PAIRS,
     "Access keys for SQS and SNS beside those of users (penstock user key), with their secrets, "
     "as KEY:SECRET, separated by commas; the principal is User:KEY. When set, every request must "
     "be signed. Penstock's own."),
    ("super.users", STRING, "User:admin", None,
     "Principals that may do everything, separated by ';'. Kafka's default is none."),
    ("tracing.enable", BOOLEAN, "false", None,
     "Traces messages that go through HTTP, SQS and SNS with OpenTelemetry; needs "
     "penstock-mq[otel]. OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT, set "
     "the destination of spans. Penstock's own."),
    ("transaction.max.timeout.ms", INT, "900000", at_least(1),
     "Largest timeout a transaction may ask for."),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000", at_least(1),
     "Interval at which expired transactional ids are removed."),
    ("transaction.state.log.load.buffer.size", INT, "5242880", at_least(1),
     "Batch size when loading."),
    ("transaction.state.log.min.isr", INT, "2", at_least(1),
     "min.insync.replicas of the transaction topic."),
    ("transaction.state.log.num.partitions", INT, "50", at_least(1),
     "Partitions of the transaction topic."),
    ("transaction.state.log.replication.factor", SHORT, "3", at_least(1),
     "Replicas of the transaction topic; at most the nodes there are."),
    ("transaction.state.log.segment.bytes", INT, "104857600", at_least(SEGMENT_BYTES_MIN),
     "Segment size of the transaction topic."),
    ("transactional.id.expiration.ms", INT, "604800000", at_least(1),
     "Time without use after which a transactional id is removed."),
)  # fmt: skip

_READ_ONLY_INERT: tuple[Row, ...] = (
    ("alter.config.policy.class.name", ConfigType.CLASS, None, None, "Policy of config changes."),
    ("alter.log.dirs.replication.quota.window.num", INT, "11", at_least(1),
     "Windows of a throttle."),
    ("alter.log.dirs.replication.quota.window.size.seconds", INT, "1", at_least(1),
     "Window of a throttle."),
    ("client.quota.callback.class", ConfigType.CLASS, None, None, "Class that sets quotas."),
    ("controller.listener.names", LIST, "", None, "Listeners of KRaft controllers."),
    ("controller.quorum.append.linger.ms", INT, "25", at_least(0),
     "Time the metadata log waits for more records."),
    ("controller.quorum.bootstrap.servers", LIST, "", None, "Addresses of KRaft controllers."),
    ("controller.quorum.voters", LIST, "", None, "KRaft voters."),
    ("controller.socket.timeout.ms", INT, "30000", None, "Timeout between KRaft nodes."),
    ("create.topic.policy.class.name", ConfigType.CLASS, None, None, "Policy of new topics."),
    ("delegation.token.expiry.check.interval.ms", LONG, "3600000", at_least(1),
     "Interval of checks for expired tokens."),
    ("delegation.token.expiry.time.ms", LONG, "86400000", at_least(1),
     "Lifetime of a delegation token without renewal."),
    ("delegation.token.max.lifetime.ms", LONG, "604800000", at_least(1),
     "Longest lifetime of a delegation token."),
    ("delegation.token.secret.key", PASSWORD, None, None, "Secret that signs tokens."),
    ("delete.records.purgatory.purge.interval.requests", INT, "1", None, "Purge interval."),
    ("fetch.purgatory.purge.interval.requests", INT, "1000", None, "Purge interval."),
    ("group.consumer.regex.refresh.interval.ms", INT, "600000", at_least(10000),
     "Interval at which regular expressions of subscriptions are matched again."),
    ("group.coordinator.append.linger.ms", INT, "-1", at_least(-1),
     "Time the group coordinator waits for more records; -1 chooses by load."),
    ("group.coordinator.background.threads", INT, "2", at_least(1), "Threads of assignors."),
    ("group.coordinator.threads", INT, "4", at_least(1), "Threads of the group coordinator."),
    ("group.share.assignors", LIST, "simple", None, "Assignors of share groups."),
    ("group.streams.max.size", INT, INT_MAX, at_least(1), "Members of a streams group."),
    ("group.streams.max.standby.replicas", INT, "2", at_least(0),
     "Largest value of streams.num.standby.replicas."),
    ("initial.broker.registration.timeout.ms", INT, "60000", None, "KRaft registration."),
    ("log.dir.failure.timeout.ms", LONG, "30000", at_least(1), "Wait before stopping."),
    ("log.flush.offset.checkpoint.interval.ms", INT, "60000", at_least(0), "Checkpoints."),
    ("log.flush.start.offset.checkpoint.interval.ms", INT, "60000", at_least(0), "Checkpoints."),
    ("log.initial.task.delay.ms", LONG, "30000", at_least(0),
     "Wait after start before retention and compaction first run."),
    ("metadata.log.dir", STRING, None, None, "Directory of the KRaft log."),
    ("metadata.max.idle.interval.ms", INT, "500", at_least(0), "KRaft's idle records."),
    ("metrics.num.samples", INT, "2", at_least(1), "Samples behind a metric."),
    ("metrics.recording.level", STRING, "INFO", None, "Detail of metrics."),
    ("metrics.sample.window.ms", LONG, "30000", at_least(1), "Window of a metric's sample."),
    ("num.replica.alter.log.dirs.threads", INT, None, None, "Threads moving replicas."),
    ("offsets.commit.timeout.ms", INT, "5000", at_least(1),
     "Longest wait of an offset commit for its replicas."),
    ("principal.builder.class", ConfigType.CLASS, None, None, "Class that names principals."),
    ("process.roles", LIST, "broker,controller", items_of("broker", "controller"),
     "KRaft roles."),
    ("producer.purgatory.purge.interval.requests", INT, "1000", None, "Purge interval."),
    ("queued.max.requests", INT, "500", at_least(1), "Requests waiting for a thread."),
    ("remote.log.storage.system.enable", BOOLEAN, "false", None, "Tiered storage."),
    ("replica.fetch.backoff.ms", INT, "1000", at_least(0),
     "Wait of a follower after a failed fetch."),
    ("replica.socket.receive.buffer.bytes", INT, "65536", None, "Buffer of a fetcher."),
    ("replication.quota.window.num", INT, "11", at_least(1), "Windows of a throttle."),
    ("replication.quota.window.size.seconds", INT, "1", at_least(1), "Window of a throttle."),
    ("request.timeout.ms", INT, "30000", None, "Longest wait of a broker for another's response."),
    ("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, "SASL between brokers."),
    ("security.inter.broker.protocol", STRING, "PLAINTEXT",
     one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), "Protocol between brokers."),
    ("share.coordinator.append.linger.ms", INT, "-1", at_least(-1),
     "Time the share coordinator waits for more records."),
    ("share.coordinator.load.buffer.size", INT, "5242880", at_least(1),
     "Batch size when loading."),
    ("share.coordinator.snapshot.update.records.per.snapshot", INT, "500", between(0, 500),
     "Updates of share state between two snapshots."),
    ("share.coordinator.threads", INT, "1", at_least(1), "Threads of the share coordinator."),
    ("share.coordinator.write.timeout.ms", INT, "5000", at_least(1),
     "Longest wait of a change of share state for its replicas."),
    ("share.fetch.purgatory.purge.interval.requests", INT, "1000", None, "Purge interval."),
    ("socket.connection.setup.timeout.max.ms", LONG, "30000", None, "Connecting to brokers."),
    ("socket.connection.setup.timeout.ms", LONG, "10000", None, "Connecting to brokers."),
    ("ssl.truststore.password", PASSWORD, None, None, "Password of the file of certificates."),
    ("telemetry.max.bytes", INT, "1048576", at_least(1), "Largest telemetry of a client."),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000", at_least(1),
     "Interval at which timed-out transactions are aborted."),
    ("transaction.two.phase.commit.enable", BOOLEAN, "false", None,
     "Allows clients to keep transactions open without a timeout."),
    ("unstable.api.versions.enable", BOOLEAN, "false", None, "APIs still in development."),
    ("unstable.feature.versions.enable", BOOLEAN, "false", None,
     "Features still in development."),
)  # fmt: skip

# Broker configs whose default another, coarser config supplies.
_BROKER_SYNONYMS = {
    "log.flush.interval.ms": (Synonym("log.flush.scheduler.interval.ms"),),
    "log.retention.ms": (
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    "log.roll.jitter.ms": (Synonym("log.roll.jitter.hours", HOUR_MS),),
    "log.roll.ms": (Synonym("log.roll.hours", HOUR_MS),),
}

# Known but without effect, although they may change while the broker runs.
_INERT_DEFAULTS = frozenset(
    synonym.name
    for config in (*TOPIC_CONFIGS, *GROUP_CONFIGS)
    if config.is_inert
    for synonym in config.synonyms
)  # fmt: skip


def _broker(rows: Iterable[Row], mode: UpdateMode, *, is_inert: bool = False) -> Iterable[Config]:
    for name, kind, default, limit, doc in rows:
        yield Config(
            name,
            kind,
            default,
            limit,
            doc,
            mode=mode,
            synonyms=_BROKER_SYNONYMS.get(name, ()),
            is_inert=is_inert or name in _INERT_DEFAULTS,
        )


BROKER_CONFIGS: tuple[Config, ...] = tuple(
    sorted(
        (
            *_broker(_CLUSTER_WIDE, UpdateMode.CLUSTER_WIDE),
            *_broker(_CLUSTER_WIDE_INERT, UpdateMode.CLUSTER_WIDE, is_inert=True),
            *_broker(_SECURITY, UpdateMode.READ_ONLY),
            *_broker(_READ_ONLY, UpdateMode.READ_ONLY),
            *_broker(_READ_ONLY_INERT, UpdateMode.READ_ONLY, is_inert=True),
        ),
        key=lambda config: config.name,
    )
)
