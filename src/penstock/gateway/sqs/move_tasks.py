"""StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask: redrive by move tasks.

The source must be a dead-letter queue. Without a destination each message goes back to the queue
that dead-lettered it. `core.move_tasks` does the work.
"""

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation
from penstock.gateway.core.cluster_types import DEAD_LETTER_SUFFIX
from penstock.gateway.core.move_tasks import FAILED, REMEMBERED_MAX, RUNNING, MoveRecord
from penstock.gateway.sqs import requests
from penstock.gateway.sqs.call import Answer, AwsCall
from penstock.gateway.sqs.errors import Fault, invalid
from penstock.gateway.sqs.queue_names import queue_of_arn
from penstock.gateway.sqs.queues import depth_of
from penstock.gateway.sqs.receive import prepare_group

RATE_MAX = 500
ALREADY = (
    "There is already a task running. Only one active task is allowed for a source queue arn at a "
    "given time."
)


async def start_message_move_task(call: AwsCall, request: requests.StartMessageMoveTask) -> Answer:
    source = queue_of_arn(request.source_arn, "SourceArn")
    queue = call.queue_named(source, Operation.READ)
    if not _is_dead_letter_queue(call, source):
        raise Fault(
            "InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue."
        )
    destination = None
    if request.destination_arn is not None:
        destination = queue_of_arn(request.destination_arn, "DestinationArn")
        if destination == source:
            raise invalid("DestinationArn", request.destination_arn, "It is the source.")
        call.queue_named(destination, Operation.WRITE)
    rate = request.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise invalid("MaxNumberOfMessagesPerSecond", rate, f"Must be between 1 and {RATE_MAX}.")
    await prepare_group(call, queue.group)
    try:
        handle = await call.moves.start(
            call.principal,
            source,
            to_move=(await depth_of(call, queue)).visible,
            destination=destination,
            rate_max=rate,
        )
    except Refused as refused:
        if refused.code is ErrorCode.DUPLICATE_RESOURCE:
            raise Fault("UnsupportedOperation", ALREADY) from refused
        raise
    return {"TaskHandle": handle}


def _is_dead_letter_queue(call: AwsCall, name: str) -> bool:
    if name.endswith(DEAD_LETTER_SUFFIX):
        return True
    topics = call.node.image.topics.values()
    return any(call.queue_of(topic).dead_letter_queue == name for topic in topics)


async def list_message_move_tasks(call: AwsCall, request: requests.ListMessageMoveTasks) -> Answer:
    most = request.max_results if request.max_results is not None else 1
    if not 1 <= most <= REMEMBERED_MAX:
        raise invalid("MaxResults", most, f"Must be between 1 and {REMEMBERED_MAX}.")
    source = queue_of_arn(request.source_arn, "SourceArn")
    call.queue_named(source, Operation.DESCRIBE)
    found = [item for item in await call.moves.records() if item[1].source == source]
    return {"Results": [_show(call, handle, record) for handle, record in found[:most]]}


def _show(call: AwsCall, handle: str, record: MoveRecord) -> Answer:
    status = call.moves.status_of(record)
    reason = record.reason
    if status == FAILED and reason is None:
        reason = f"node {record.owner}, which ran the task, is not in the cluster"
    shown: dict[str, object | None] = {
        "TaskHandle": handle if status == RUNNING else None,
        "Status": status,
        "SourceArn": call.arn(record.source),
        "DestinationArn": record.destination and call.arn(record.destination),
        "MaxNumberOfMessagesPerSecond": record.rate_max,
        "ApproximateNumberOfMessagesMoved": record.moved,
        "ApproximateNumberOfMessagesToMove": record.to_move,
        "FailureReason": reason if status == FAILED else None,
        "StartedTimestamp": record.started_ms,
    }
    return {name: value for name, value in shown.items() if value is not None}


async def cancel_message_move_task(
    call: AwsCall, request: requests.CancelMessageMoveTask
) -> Answer:
    try:
        changed = await call.moves.cancel(call.principal, request.task_handle)
    except Refused as refused:
        if refused.code is ErrorCode.RESOURCE_NOT_FOUND:
            raise Fault("ResourceNotFoundException", "Task does not exist, or has ended.") from None
        raise
    return {"ApproximateNumberOfMessagesMoved": changed.moved}
