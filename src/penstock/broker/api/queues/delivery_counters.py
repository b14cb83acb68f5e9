"""Counts what queues deliver, for every door: how much, how old, and how long until the ack."""

from penstock.broker.api.context import ShareContext
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.queues.record_reader import LeasedBatches
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.records import age_seconds


def count_delivery(
    ctx: ShareContext, topic: TopicImage | None, key: QueueKey, leased: LeasedBatches
) -> None:
    """One act of delivery from one queue: a few numbers, however many records it has."""
    if not leased.leases:
        return
    now_ms = ctx.clock.now_ms()
    records = sum(lease.last - lease.first + 1 for lease in leased.leases)
    age_s = age_seconds(leased.parts[0], now_ms) if leased.parts else None
    ctx.metrics.count_delivery(topic, leased.size, records, age_s)
    # What another node leads is acknowledged there: nobody here would hear of it.
    if ctx.queues.find_quietly(key) is not None:
        ctx.queues.counts.sample(key, leased.leases[0].first, now_ms, age_s or 0.0)
