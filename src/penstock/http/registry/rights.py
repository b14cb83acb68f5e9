"""Who may ask what of the registry.

A subject `orders-value` or `orders-key` is a matter of the topic `orders`; any other subject has
the rights of a topic of its own name. Looking needs DESCRIBE, registering WRITE, deleting DELETE,
levels and modes ALTER_CONFIGS; what is set for all needs the same right to the cluster. A schema by
its id is shown to everyone who may connect, as records carry ids. Listings leave out what the
caller may not see.
"""

from typing import Final

import msgspec

from penstock.api.context import Context
from penstock.api.route import Operation, ResourceType
from penstock.registry import calls
from penstock.registry.errors import Number, Rejected

CLUSTER_NAME: Final = "kafka-cluster"
OPERATIONS: Final[dict[type[calls.Call], Operation]] = {
    calls.Register: Operation.WRITE,
    calls.LookUp: Operation.DESCRIBE,
    calls.CheckProposal: Operation.DESCRIBE,
    calls.ListVersions: Operation.DESCRIBE,
    calls.GetVersion: Operation.DESCRIBE,
    calls.GetByMetadata: Operation.DESCRIBE,
    calls.GetReferrers: Operation.DESCRIBE,
    calls.DeleteVersion: Operation.DELETE,
    calls.DeleteSubject: Operation.DELETE,
    calls.GetConfig: Operation.DESCRIBE_CONFIGS,
    calls.PutConfig: Operation.ALTER_CONFIGS,
    calls.DeleteConfig: Operation.ALTER_CONFIGS,
    calls.GetMode: Operation.DESCRIBE_CONFIGS,
    calls.PutMode: Operation.ALTER_CONFIGS,
    calls.DeleteMode: Operation.ALTER_CONFIGS,
}
FREE: Final = frozenset({calls.GetById, calls.GetByGuid, calls.ListIdsOfGuid})
FILTERED: Final = frozenset({calls.ListSubjects, calls.ListSchemas, calls.ListPlaces})


def topic_of(subject: str) -> str:
    return subject.removesuffix("-value").removesuffix("-key")


def require(ctx: Context, principal: str, call: calls.AnyCall) -> None:
    """Raises Rejected without the right to a call."""
    kind = type(call)
    if kind in FREE or kind in FILTERED:
        return
    operation = OPERATIONS.get(kind)
    subject: str | None = getattr(call, "subject", None)
    is_allowed = False
    if operation is not None and subject is not None:
        is_allowed = _may(ctx, principal, operation, subject)
    elif operation is not None:
        is_allowed = ctx.authorizer.allows(principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)
    if not is_allowed:
        raise Rejected(Number.FORBIDDEN, "User is denied this operation on this subject")


def filter_listing(ctx: Context, principal: str, call: calls.AnyCall, answer: bytes) -> bytes:
    """Without the subjects that the caller may not see."""
    if type(call) not in FILTERED:
        return answer
    rows = msgspec.json.decode(answer)
    seen = [
        row
        for row in rows
        if _may(ctx, principal, Operation.DESCRIBE, row if isinstance(row, str) else row["subject"])
    ]
    return answer if len(seen) == len(rows) else msgspec.json.encode(seen)


def _may(ctx: Context, principal: str, operation: Operation, subject: str) -> bool:
    return ctx.authorizer.allows(principal, operation, ResourceType.TOPIC, topic_of(subject))
