"""Puts off the producers of a disk that fills up, and of a backlog that is full.

As with quotas the answer leaves at once and says for how long (`throttle_time_ms`), and the
connection is not read meanwhile (KIP-219). What is refused altogether,
`cluster.storage.write_pressure` says.
"""

from penstock.broker.api.call import Call
from penstock.broker.api.context import ProduceContext
from penstock.cluster.storage.write_pressure import BLOCKED_SECONDS, Policy
from penstock.wire.messages.produce import ProduceResponse

DISK = "disk"
BACKLOG = "backlog"


def slow_down(ctx: ProduceContext, call: Call, response: ProduceResponse) -> None:
    """Before a produce is answered, while there is pressure on writes."""
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
