"""Counters of deliveries by queues, for every protocol: bytes, age, and time until the ack."""

from penstock.broker.api.context import ShareContext
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.queues.record_reader import LeasedBatches
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.records import age_seconds


def count_delivery(
    ctx: ShareContext, topic: TopicImage | None, key: QueueKey, leased: LeasedBatches
) -> None:
    """Counts one delivery of a queue, with constant cost for any number of records."""
    if not leased.leases:
        return
    now_ms = ctx.clock.now_ms()
    records = sum(lease.last - lease.first + 1 for lease in leased.leases)
    age_s = age_seconds(leased.parts[0], now_ms) if leased.parts else None
    ctx.metrics.count_delivery(topic, leased.size, records, age_s)
    # Records of another leader are acknowledged there, so this node cannot time them.
    if ctx.queues.find_quietly(key) is not None:
        ctx.queues.counts.sample(key, leased.leases[0].first, now_ms, age_s or 0.0)
