"""How much is in a queue, as the leaders of its partitions say, and emptying it."""

from dataclasses import dataclass

from penstock.base.errors import Refused
from penstock.gateway.sqs.call import AwsCall
from penstock.gateway.sqs.queue_attributes import SqsQueue
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.internal.queue_admin import QueueReport

NOTHING_KEPT = -1


@dataclass(frozen=True, slots=True)
class ApproximateDepth:
    """What is in a queue at one moment, more or less."""

    visible: int
    in_flight: int
    delayed: int


async def depth_of(call: AwsCall, queue: SqsQueue) -> ApproximateDepth:
    if queue.is_fifo:
        # Duplicates are found by looking at them.
        await call.gateway.catch_up(queue.topic, queue.group)
    standing = await call.gateway.queues.one(call.principal, queue.name, queue.group)
    in_flight = standing.leased + standing.given_up
    unfinished = sum(_unfinished(report) for report in standing.partitions)
    visible = max(unfinished - in_flight - standing.delayed, 0)
    return ApproximateDepth(visible, in_flight, standing.delayed)


def _unfinished(report: QueueReport) -> int:
    if report.start_offset == NOTHING_KEPT:
        # Nobody has received yet; whoever is first begins with the oldest message.
        return max(report.high_watermark - report.log_start_offset, 0)
    return report.unfinished


async def purge(call: AwsCall, queue: SqsQueue) -> None:
    """Everything that is in the queue now is finished; in the log it stays for others."""
    standing = await call.gateway.queues.one(call.principal, queue.name, queue.group)
    starts = [
        (QueueKey(queue.group, queue.topic.id, report.partition), report.high_watermark)
        for report in standing.partitions
    ]
    for told in await call.node.queue.queue_admin.move(starts):
        if isinstance(told, Refused):
            raise told
