"""Backpressure: throttles producers while a disk fills up or a backlog is full.

As with quotas, the reply is sent at once with `throttle_time_ms`, and the connection is not read
for that time (KIP-219). `cluster.storage.write_pressure` decides which writes are refused.
"""

from penstock.broker.api.call import Call
from penstock.broker.api.context import ProduceContext
from penstock.cluster.storage.write_pressure import BLOCKED_SECONDS, Policy
from penstock.wire.messages.produce import ProduceResponse

DISK = "disk"
BACKLOG = "backlog"


def slow_down(ctx: ProduceContext, call: Call, response: ProduceResponse) -> None:
    """Throttles the client of a produce request before its reply, while backpressure is active."""
    kind, wait_s = DISK, ctx.partitions.pressure.delay_s
    if wait_s < BLOCKED_SECONDS and _is_blocked(ctx, response):
        kind, wait_s = BACKLOG, BLOCKED_SECONDS
    if wait_s > 0:
        ctx.metrics.count_throttle(kind, wait_s)
        response.throttle_time_ms = int(wait_s * 1000)
        call.caller.mute(wait_s)


def _is_blocked(ctx: ProduceContext, response: ProduceResponse) -> bool:
    pressure = ctx.partitions.pressure
    if not pressure.full_count:
        return False
    for topic in response.responses:
        known = ctx.image.topics_by_id.get(topic.topic_id)
        name = topic.name or (known.name if known is not None else "")
        for row in topic.partition_responses:
            full = pressure.full(name, row.index)
            if full is not None and full.policy is Policy.BLOCK:
                return True
    return False
