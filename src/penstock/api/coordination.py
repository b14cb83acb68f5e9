"""What the handlers of groups and transactions share: from a request to its coordinator and back.

A call that its coordinator answers later is kept, and forgotten there if the connection goes.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from penstock.api.context import Call, Context
from penstock.api.route import Operation, ResourceType
from penstock.base.errors import Refused
from penstock.base.machine import Token
from penstock.coordinator.host import Seat
from penstock.groups.config import Caller

GROUP_OPERATIONS = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
ID_BYTES = 16

Answer: TypeAlias = Callable[[Any], None]
"""Takes a call's reply, or the Refused that it gets instead."""
Given: TypeAlias = tuple[Seat[Any], Token]
"""Where a call went, and the token it has there."""
Refuse: TypeAlias = Callable[[Refused], Any]
"""Makes the response that says no to all of a request.

These have names because functions inside handlers use them: what is written out in an annotation
there is built again for every request.
"""


def caller_of(ctx: Context, call: Call, *, fresh_id: bool = False) -> Caller:
    """Who asks, in the machines' words; with an id for a new member where one may be needed."""
    return Caller(
        client_id=call.client_id or "",
        client_host=f"/{call.caller.peer}",
        api_version=call.version,
        fresh_id=new_id(ctx) if fresh_id else "",
    )


def new_id(ctx: Context) -> str:
    """A random id as Java prints a UUID; tools cut member ids at these dashes."""
    text = ctx.random.random_bytes(ID_BYTES).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def park(call: Call, give: Callable[[Answer], Given], refuse: Refuse) -> Any:
    """Gives the call to a seat; the response if that refuses at once, None if it comes later."""

    def answer(reply: Any) -> None:
        if not call.is_done:
            call.reply(refuse(reply) if isinstance(reply, Refused) else reply)

    try:
        seat, token = give(answer)
    except Refused as refused:
        return refuse(refused)
    if not call.is_done:
        call.when_abandoned(lambda: seat.dropped(token))
    return None


async def gathered(futures: Iterable["asyncio.Future[Any] | Refused"]) -> list[Any]:
    """Every reply, or the Refused in its place; the calls were all made before the first wait."""
    found: list[Any] = []
    for future in list(futures):
        if isinstance(future, Refused):
            found.append(future)
            continue
        try:
            found.append(await future)
        except Refused as refused:
            found.append(refused)
    return found


def may_group(ctx: Context, call: Call, operation: Operation, group_id: str) -> bool:
    return ctx.authorize(call, operation, ResourceType.GROUP, group_id)


def may_txn(ctx: Context, call: Call, operation: Operation, transactional_id: str) -> bool:
    return ctx.authorize(call, operation, ResourceType.TRANSACTIONAL_ID, transactional_id)


def group_operations(ctx: Context, call: Call, group_id: str) -> int:
    """The caller's rights on a group, a bit for each operation (KIP-430)."""
    return sum(
        1 << operation
        for operation in GROUP_OPERATIONS
        if may_group(ctx, call, operation, group_id)
    )
