"""Calls from handlers to coordinators of groups and transactions, and their replies.

The coordinator keeps a call that it answers later, and drops it if the connection is lost.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from penstock.base.errors import Refused
from penstock.base.fair_scheduler import Steps, picked
from penstock.broker.api.call import Call
from penstock.broker.api.context import ApiFamily, GroupContext, QueueContext, TransactionContext
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.state.groups.config import GroupCaller
from penstock.state.groups.error_replies import refusal

GROUP_OPERATIONS = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
ID_BYTES = 16
CALLERS_REMEMBERED = 500

Row = TypeVar("Row")
Coordinated: TypeAlias = GroupContext | TransactionContext | QueueContext
"""Families that call coordinators of groups."""
Shape: TypeAlias = Callable[[Any], Any]
"""Completes a response of the shard, or one that refuses the whole request."""


def caller_of(ctx: Coordinated, call: Call, *, fresh_id: bool = False) -> GroupCaller:
    """Returns the caller for the state machine, with an id for a new member if needed."""
    client_id, peer, principal = call.client_id or "", call.caller.peer, call.principal
    if not fresh_id:
        return _caller(client_id, peer, call.version, principal)
    return GroupCaller(client_id, f"/{peer}", call.version, new_id(ctx), principal)


@lru_cache(maxsize=CALLERS_REMEMBERED)
def _caller(client_id: str, peer: str, version: int, principal: str) -> GroupCaller:
    """Cached, since members call again and again."""
    return GroupCaller(client_id, f"/{peer}", version, "", principal)


def new_id(ctx: Coordinated) -> str:
    """Returns a random id in the format of Java's UUID; tools split member ids at its dashes."""
    text = ctx.random.random_bytes(ID_BYTES).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def ask_group(
    ctx: Coordinated,
    call: Call,
    name: str,
    request: Any,
    shape: Shape | None = None,
    *,
    fresh_id: bool = False,
) -> Any:
    """Passes a request to its group's shard; returns a refusal, or None: the shard replies.

    The shard may have replied already: most heartbeats are answered at once.
    """

    def answer(reply: Any) -> None:
        if call.is_done:
            return
        if isinstance(reply, Refused):
            reply = refusal(name, request, reply, call.version)
        call.reply(reply if shape is None else shape(reply))

    caller = caller_of(ctx, call, fresh_id=fresh_id)
    try:
        runtime, token = ctx.groups.handle(request.group_id, name, request, caller, answer)
    except Refused as refused:
        response = refusal(name, request, refused, call.version)
        return response if shape is None else shape(response)
    if not call.is_done:
        call.when_abandoned(lambda: runtime.dropped(token))
    return None


async def gathered(futures: Iterable["asyncio.Future[Any] | Refused"]) -> list[Any]:
    """Awaits all replies, which run concurrently; a Refused takes the place of a reply."""
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


def permitted_rows(
    replies: Sequence[Refused | Steps[list[Row]]], pick: Callable[[Row], Row | None]
) -> Steps[list[Row]]:
    """Joins the rows of all shards that answered, as far as `pick` permits them."""
    found: list[Row] = []
    for reply in replies:
        yield
        if not isinstance(reply, Refused):
            found += yield from reply
    return (yield from picked(found, pick))


def may_group(ctx: ApiFamily, call: Call, operation: Operation, group_id: str) -> bool:
    return ctx.authorize(call, operation, ResourceType.GROUP, group_id)


def may_txn(ctx: ApiFamily, call: Call, operation: Operation, transactional_id: str) -> bool:
    return ctx.authorize(call, operation, ResourceType.TRANSACTIONAL_ID, transactional_id)


def add_group_operations(ctx: ApiFamily, call: Call, rows: Sequence[Any]) -> None:
    """Sets the operations that the caller may perform on described groups, as bits (KIP-430)."""
    for row in rows:
        if not row.error_code:
            row.authorized_operations = sum(
                1 << operation
                for operation in GROUP_OPERATIONS
                if may_group(ctx, call, operation, row.group_id)
            )
