"""Requests of other nodes about queues: KeepQueueState (api 30001), TellQueue (30002),
TakeFromQueues (30003) and SettleLeases (30004), version 0.

Penstock's own APIs between its nodes, not listed in ApiVersions; they need CLUSTER_ACTION. Replies
are in the order of the calls.
"""

from functools import partial

from penstock.base.errors import ErrorCode
from penstock.broker.api.call import Call
from penstock.broker.api.context import QueueContext
from penstock.broker.api.response_rows import may_cluster
from penstock.broker.api.route_row import Operation
from penstock.wire.messages.internal.queues import (
    KeepQueueStateRequest,
    KeepQueueStateResponse,
    QueueAnswer,
    QueueStateAnswer,
    RulingAnswer,
    SettleLeasesRequest,
    SettleLeasesResponse,
    TakeFromQueuesRequest,
    TakeFromQueuesResponse,
    TellQueueRequest,
    TellQueueResponse,
)

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def keep_queue_state(
    ctx: QueueContext, call: Call, request: KeepQueueStateRequest
) -> KeepQueueStateResponse | None:
    """Makes all calls at once, in order; replies when the last one is persisted."""
    calls = request.calls
    answers = [QueueStateAnswer(error_code=DENIED) for _ in calls]
    if not calls or not may_cluster(ctx, call, Operation.CLUSTER_ACTION):
        return KeepQueueStateResponse(answers=answers)
    left = len(calls)

    def answered(at: int, answer: QueueStateAnswer) -> None:
        nonlocal left
        answers[at] = answer
        left -= 1
        if not left and not call.is_done:
            call.reply(KeepQueueStateResponse(answers=answers))

    for at, one in enumerate(calls):
        ctx.queues.keeping.answer_here(one, partial(answered, at))
    return None


async def tell_queue(ctx: QueueContext, call: Call, request: TellQueueRequest) -> TellQueueResponse:
    if not may_cluster(ctx, call, Operation.CLUSTER_ACTION):
        answers = [QueueAnswer(error_code=DENIED) for _ in request.calls]
        return TellQueueResponse(answers=answers)
    return TellQueueResponse(answers=await ctx.queue_admin.answer_all(request.calls))


async def take_from_queues(
    ctx: QueueContext, call: Call, request: TakeFromQueuesRequest
) -> TakeFromQueuesResponse:
    """Waits for records up to the request's timeout; a lost connection returns them."""
    if not may_cluster(ctx, call, Operation.CLUSTER_ACTION):
        return TakeFromQueuesResponse(error_code=DENIED)
    return await ctx.queue_router.answer_take(request)


async def settle_leases(
    ctx: QueueContext, call: Call, request: SettleLeasesRequest
) -> SettleLeasesResponse:
    if not may_cluster(ctx, call, Operation.CLUSTER_ACTION):
        answers = [RulingAnswer(error_code=DENIED) for _ in request.rulings]
        return SettleLeasesResponse(answers=answers)
    return await ctx.queue_router.answer_settle(request)
