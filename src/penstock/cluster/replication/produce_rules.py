"""Rules of a topic's config for the batches that are written to it."""

from penstock.cluster.configs.configs import TopicConfig
from penstock.cluster.replication.partition import ProduceRules
from penstock.wire.compression import Codec


def rules_of(config: TopicConfig) -> ProduceRules:
    codec = None
    if config.compression_type != "producer":
        codec = (
            Codec.NONE
            if config.compression_type == "uncompressed"
            else Codec[config.compression_type.upper()]
        )
    return ProduceRules(
        message_bytes_max=config.log.message_bytes_max,
        append_time=config.append_time,
        timestamp_before_max_ms=config.timestamp_before_max_ms,
        timestamp_after_max_ms=config.timestamp_after_max_ms,
        keys_required=config.log.cleanup_compact,
        codec=codec,
        level=config.compression_level,
        key_schema=config.key_schema,
        value_schema=config.value_schema,
    )
