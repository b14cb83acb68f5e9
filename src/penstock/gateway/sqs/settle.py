"""DeleteMessage, ChangeMessageVisibility and their batches: settle received messages.

Deleting acknowledges the message; deleting a deleted message is not an error, as in SQS. A
visibility timeout of 0 releases a message, any other one sets the lease's remaining time. With an
expired receipt a message of a standard queue can still be deleted, unless it is leased to another
consumer; all other actions refuse the receipt.
"""

from collections.abc import Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation
from penstock.gateway.core.gateway import SettleAction, Settlement
from penstock.gateway.sqs import requests
from penstock.gateway.sqs.call import Answer, AwsCall, batch_answer, check_entries
from penstock.gateway.sqs.errors import SHOWN_CHARS_MAX, Fault, fault_of, invalid
from penstock.gateway.sqs.queue_attributes import NUMBERS, SqsQueue
from penstock.state.queues.delivery import ANSWERED_BEFORE

GONE = "Message does not exist or is not available for visibility timeout change."
EXPIRED = "The receipt handle has expired."


async def delete_message(call: AwsCall, request: requests.DeleteMessage) -> Answer:
    queue = call.queue(request.queue_url, Operation.READ)
    (fault,) = await _delete(call, queue, [request.receipt_handle])
    if fault is not None:
        raise fault
    return {}


async def delete_message_batch(call: AwsCall, request: requests.DeleteMessageBatch) -> Answer:
    queue = call.queue(request.queue_url, Operation.READ)
    entries = request.entries
    check_entries(entries, "DeleteMessageBatchRequestEntry")
    faults = await _delete(call, queue, [entry.receipt_handle for entry in entries])
    return batch_answer(entries, [fault or {} for fault in faults])


async def change_message_visibility(
    call: AwsCall, request: requests.ChangeMessageVisibility
) -> Answer:
    queue = call.queue(request.queue_url, Operation.READ)
    (fault,) = await _change(call, queue, [(request.receipt_handle, request.visibility_timeout)])
    if fault is not None:
        raise fault
    return {}


async def change_message_visibility_batch(
    call: AwsCall, request: requests.ChangeMessageVisibilityBatch
) -> Answer:
    queue = call.queue(request.queue_url, Operation.READ)
    entries = request.entries
    check_entries(entries, "ChangeMessageVisibilityBatchRequestEntry")
    faults = await _change(
        call, queue, [(entry.receipt_handle, entry.visibility_timeout) for entry in entries]
    )
    return batch_answer(entries, [fault or {} for fault in faults])


async def _delete(call: AwsCall, queue: SqsQueue, receipts: Sequence[str]) -> list[Fault | None]:
    settlements = [Settlement(receipt, SettleAction.ACCEPT) for receipt in receipts]
    answers = await call.gateway.settle(call.principal, settlements, queue.topic.id)
    if not queue.is_fifo:
        # Unless another consumer has it, an expired message is deleted, as in SQS.
        late = [at for at, answer in enumerate(answers) if _is_late(answer)]
        again = [Settlement(receipts[at], SettleAction.FINISH) for at in late]
        retried = await call.gateway.settle(call.principal, again, queue.topic.id)
        for at, answer in zip(late, retried, strict=True):
            # A node of an older version does not know FINISH: its first answer counts.
            is_unknown = answer is not None and answer.code is ErrorCode.INVALID_REQUEST
            answers[at] = answers[at] if is_unknown else answer
    return [
        None if _is_gone(answer) else _fault(receipt, answer)
        for receipt, answer in zip(receipts, answers, strict=True)
    ]


async def _change(
    call: AwsCall, queue: SqsQueue, changes: Sequence[tuple[str, int]]
) -> list[Fault | None]:
    faults: list[Fault | None] = [None] * len(changes)
    settlements: list[tuple[int, Settlement]] = []
    limit = NUMBERS["VisibilityTimeout"]
    for at, (receipt, timeout_s) in enumerate(changes):
        if not limit.low <= timeout_s <= limit.high:
            faults[at] = invalid(
                "VisibilityTimeout",
                timeout_s,
                f"VisibilityTimeout must be an integer between {limit.low} and {limit.high}.",
            )
            continue
        settlements.append((at, _settlement(receipt, timeout_s)))
    answers = await call.gateway.settle(
        call.principal, [one for _, one in settlements], queue.topic.id
    )
    for (at, _), answer in zip(settlements, answers, strict=True):
        faults[at] = _fault(changes[at][0], answer)
    return faults


def _settlement(receipt: str, timeout_s: int) -> Settlement:
    if timeout_s == 0:
        return Settlement(receipt, SettleAction.RELEASE, delay_ms=0)
    return Settlement(receipt, SettleAction.EXTEND, lock_ms=timeout_s * 1000)


def _is_gone(answer: Refused | None) -> bool:
    """True if the message was deleted before, by this receipt or another."""
    return answer is not None and ANSWERED_BEFORE in (answer.message or "")


def _is_late(answer: Refused | None) -> bool:
    is_over = answer is not None and answer.code is ErrorCode.INVALID_RECORD_STATE
    return is_over and not _is_gone(answer)


def _fault(receipt: str, answer: Refused | None) -> Fault | None:
    if answer is None:
        return None
    if answer.code is ErrorCode.INVALID_REQUEST:
        shown = receipt[:SHOWN_CHARS_MAX]
        return Fault(
            "ReceiptHandleIsInvalid",
            f'The input receipt handle "{shown}" is not a valid receipt handle.',
        )
    if answer.code is ErrorCode.INVALID_RECORD_STATE:
        return invalid("ReceiptHandle", receipt, GONE if _is_gone(answer) else EXPIRED)
    return fault_of(answer)
