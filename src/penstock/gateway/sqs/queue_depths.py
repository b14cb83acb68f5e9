"""Approximate message counts of a queue, from the leaders of its partitions, and purging."""

from dataclasses import dataclass

from penstock.base.errors import Refused
from penstock.gateway.sqs.call import AwsCall
from penstock.gateway.sqs.queue_attributes import SqsQueue
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.internal.queue_admin import QueueReport

NO_STATE = -1
"""Start offset of a queue without state."""


@dataclass(frozen=True, slots=True)
class ApproximateDepth:
    """Approximate message counts of a queue."""

    visible: int
    in_flight: int
    delayed: int


async def depth_of(call: AwsCall, queue: SqsQueue) -> ApproximateDepth:
    if queue.is_fifo:
        # Duplicates are only recognized once the queue has read them.
        await call.gateway.catch_up(queue.topic, queue.group)
    standing = await call.gateway.queues.one(call.principal, queue.name, queue.group)
    in_flight = standing.leased + standing.given_up
    unfinished = sum(_unfinished(report) for report in standing.partitions)
    visible = max(unfinished - in_flight - standing.delayed, 0)
    return ApproximateDepth(visible, in_flight, standing.delayed)


def _unfinished(report: QueueReport) -> int:
    if report.start_offset == NO_STATE:
        # The group has not received yet; it will start with the oldest message.
        return max(report.high_watermark - report.log_start_offset, 0)
    return report.unfinished


async def purge(call: AwsCall, queue: SqsQueue) -> None:
    """Finishes all messages of the queue now; they stay in the log for other groups."""
    standing = await call.gateway.queues.one(call.principal, queue.name, queue.group)
    starts = [
        (QueueKey(queue.group, queue.topic.id, report.partition), report.high_watermark)
        for report in standing.partitions
    ]
    for result in await call.node.queue.queue_admin.move(starts):
        if isinstance(result, Refused):
            raise result
