"""DeleteMessage, ChangeMessageVisibility and their batches: what becomes of a received message.

Deleting accepts the lease; deleting what is already gone is no error, as in SQS. A visibility
timeout of 0 gives a message back, any other makes the lease end so long from now. A receipt whose
time is up is refused in both: somebody else may have the message by now.
"""

from collections.abc import Sequence

from penstock.api.route import Operation
from penstock.base.errors import ErrorCode, Refused
from penstock.doors.door import Settlement, Verdict
from penstock.doors.receipts import Receipts
from penstock.http.sqs import requests
from penstock.http.sqs.batches import batch_answer, check_entries
from penstock.http.sqs.call import Answer, Call
from penstock.http.sqs.faults import Fault, fault_of, invalid
from penstock.http.sqs.settings import NUMBERS, Queue
from penstock.queues.delivery import ANSWERED_BEFORE


async def delete_message(call: Call, request: requests.DeleteMessage) -> Answer:
    queue = call.queue(request.queue_url, Operation.READ)
    (fault,) = await _delete(call, queue, [request.receipt_handle])
    if fault is not None:
        raise fault
    return {}


async def delete_message_batch(call: Call, request: requests.DeleteMessageBatch) -> Answer:
    queue = call.queue(request.queue_url, Operation.READ)
    entries = request.entries
    check_entries(entries)
    faults = await _delete(call, queue, [entry.receipt_handle for entry in entries])
    return batch_answer(entries, [fault or {} for fault in faults])


async def change_message_visibility(
    call: Call, request: requests.ChangeMessageVisibility
) -> Answer:
    queue = call.queue(request.queue_url, Operation.READ)
    (fault,) = await _change(call, queue, [(request.receipt_handle, request.visibility_timeout)])
    if fault is not None:
        raise fault
    return {}


async def change_message_visibility_batch(
    call: Call, request: requests.ChangeMessageVisibilityBatch
) -> Answer:
    queue = call.queue(request.queue_url, Operation.READ)
    entries = request.entries
    check_entries(entries)
    faults = await _change(
        call, queue, [(entry.receipt_handle, entry.visibility_timeout) for entry in entries]
    )
    return batch_answer(entries, [fault or {} for fault in faults])


async def _delete(call: Call, queue: Queue, receipts: Sequence[str]) -> list[Fault | None]:
    settlements = [Settlement(receipt, Verdict.ACCEPT) for receipt in receipts]
    answers = await _settle(call, queue, settlements)
    return [None if _is_gone(answer) else _fault(answer) for answer in answers]


async def _change(
    call: Call, queue: Queue, changes: Sequence[tuple[str, int]]
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
    answers = await _settle(call, queue, [one for _, one in settlements])
    for (at, _), answer in zip(settlements, answers, strict=True):
        faults[at] = _fault(answer)
    return faults


async def _settle(
    call: Call, queue: Queue, settlements: Sequence[Settlement]
) -> list[Refused | None]:
    """As the door settles; receipts of other queues are as foreign here as any other text."""
    receipts = Receipts(call.node.image.cluster_id)
    answers: list[Refused | None] = [None] * len(settlements)
    going: list[int] = []
    for at, settlement in enumerate(settlements):
        try:
            if receipts.read(settlement.receipt).key.topic_id != queue.topic.id:
                raise Refused(ErrorCode.INVALID_REQUEST, "the receipt is of another queue")
            going.append(at)
        except Refused as refused:
            answers[at] = refused
    settled = await call.door.settle(call.principal, [settlements[at] for at in going])
    for at, answer in zip(going, settled, strict=True):
        answers[at] = answer
    return answers


def _settlement(receipt: str, timeout_s: int) -> Settlement:
    if timeout_s == 0:
        return Settlement(receipt, Verdict.RELEASE, delay_ms=0)
    return Settlement(receipt, Verdict.EXTEND, lock_ms=timeout_s * 1000)


def _is_gone(answer: Refused | None) -> bool:
    """Whether the message was deleted before, by this receipt or by another."""
    return answer is not None and ANSWERED_BEFORE in (answer.message or "")


def _fault(answer: Refused | None) -> Fault | None:
    if answer is None:
        return None
    if answer.code is ErrorCode.INVALID_REQUEST:
        return Fault("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
    if answer.code is ErrorCode.INVALID_RECORD_STATE:
        if _is_gone(answer):
            return Fault("MessageNotInflight", "The message is not in flight: it was deleted.")
        return Fault(
            "ReceiptHandleIsInvalid",
            "The receipt handle has expired: the visibility timeout is over, and the message is "
            "there for others again.",
        )
    return fault_of(answer)
