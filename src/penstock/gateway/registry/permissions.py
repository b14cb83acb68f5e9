"""Who may ask what of the registry.

A subject `orders-value` or `orders-key` is a matter of the topic `orders`; any other subject has
the rights of a topic of its own name. Looking needs DESCRIBE, registering WRITE, deleting DELETE,
levels and modes ALTER_CONFIGS; what is set for all needs the same right to the cluster, and so does
mode IMPORT, which chooses ids that all subjects share. A schema by its id is there for those who
may see one of the subjects that have it, and for others it is not there. What a schema refers to
has to be seen, too. Whoever may write to an alias writes to the subject that it stands for, so
WRITE to that one is needed to set it. Listings leave out what the caller may not see.

The name of a subject has its context in front: `:.sales:orders-value` is a matter of the resource
`:.sales:orders`, and the context itself of `:.sales:`, so that a prefix gives rights to all of it.
"""

from typing import Any, Final

import msgspec

from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.permissions import may
from penstock.state.registry import requests
from penstock.state.registry.compatibility_levels import SubjectMode
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.queries import no_schema, no_subject
from penstock.state.registry.subject_names import (
    DEFAULT_CONTEXT,
    EVERYWHERE,
    context_of,
    join_subject,
    seen_from,
)

CLUSTER_NAME: Final = "kafka-cluster"
OPERATIONS: Final[dict[type[requests.RegistryCall], Operation]] = {
    requests.Register: Operation.WRITE,
    requests.LookUp: Operation.DESCRIBE,
    requests.CheckProposal: Operation.DESCRIBE,
    requests.ListVersions: Operation.DESCRIBE,
    requests.GetVersion: Operation.DESCRIBE,
    requests.GetByMetadata: Operation.DESCRIBE,
    requests.GetReferrers: Operation.DESCRIBE,
    requests.DeleteVersion: Operation.DELETE,
    requests.DeleteSubject: Operation.DELETE,
    requests.DeleteContext: Operation.DELETE,
    requests.GetConfig: Operation.DESCRIBE_CONFIGS,
    requests.PutConfig: Operation.ALTER_CONFIGS,
    requests.DeleteConfig: Operation.ALTER_CONFIGS,
    requests.GetMode: Operation.DESCRIBE_CONFIGS,
    requests.PutMode: Operation.ALTER_CONFIGS,
    requests.DeleteMode: Operation.ALTER_CONFIGS,
}
SUFFIXES: Final = ("-value", "-key")
BY_ID: Final = (requests.GetById, requests.GetByGuid, requests.ListIdsOfGuid)
FILTERED: Final = frozenset(
    {requests.ListSubjects, requests.ListSchemas, requests.ListPlaces, requests.ListContexts}
)


def topic_of(subject: str) -> str:
    """Only the last part goes: `a-key-value` is of the values of `a-key`."""
    suffix = next((one for one in SUFFIXES if subject.endswith(one)), "")
    return subject.removesuffix(suffix)


async def require(ctx: Context, principal: Principal, call: requests.AnyCall) -> None:
    """Raises Rejected without the right to a call."""
    kind = type(call)
    if kind in FILTERED:
        return
    if isinstance(call, BY_ID):
        await _require_seen(ctx, principal, call)
        return
    operation = OPERATIONS.get(kind)
    subject: str | None = getattr(call, "subject", None)
    is_allowed = False
    if operation is not None and subject is not None:
        is_allowed = _may(ctx, principal, operation, subject)
    if operation is not None and (subject is None or _concerns_all(call)):
        is_everywhere = may(ctx, principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)
        is_allowed = is_everywhere and (is_allowed or subject is None)
    if not is_allowed or not all(
        _may(ctx, principal, needed, other) for needed, other in _named_beside(call)
    ):
        raise Rejected(RegistryErrorCode.FORBIDDEN, "User is denied this operation on this subject")


def _concerns_all(call: requests.AnyCall) -> bool:
    """Whether a call for one subject could take something from all others."""
    if getattr(call, "subject", None) == EVERYWHERE:
        return True
    return isinstance(call, requests.PutMode) and call.mode.upper() == SubjectMode.IMPORT


def _named_beside(call: requests.AnyCall) -> list[tuple[Operation, str]]:
    """Subjects that a call makes use of, beside the one it is about, and what that needs."""
    if isinstance(call, requests.Proposal):
        context = context_of(call.subject)
        return [(Operation.DESCRIBE, seen_from(context, one.subject)) for one in call.references]
    if isinstance(call, requests.PutConfig) and call.alias:
        return [(Operation.WRITE, seen_from(context_of(call.subject), call.alias))]
    return []


async def _require_seen(
    ctx: Context,
    principal: Principal,
    call: requests.GetById | requests.GetByGuid | requests.ListIdsOfGuid,
) -> None:
    """Raises as if there were no such schema, unless the caller may see a subject that has it."""
    if not ctx.authorizer.is_on:
        return
    if isinstance(call, requests.GetById):
        ids, name = [(call.id, call.subject)], str(call.id)
    else:
        rows = msgspec.json.decode(
            await ctx.produce.registry.ask(requests.ListIdsOfGuid(call.guid))
        )
        ids = [(row["id"], join_subject(row["context"], "")) for row in rows]
        name = call.guid
    for schema_id, found_by in ids:
        places = requests.ListPlaces(id=schema_id, deleted=True, found_by=found_by)
        subjects: list[str] = msgspec.json.decode(await ctx.produce.registry.ask(places))
        if any(_may(ctx, principal, Operation.DESCRIBE, subject) for subject in subjects):
            return
    raise no_schema(name)


def filter_listing(
    ctx: Context, principal: Principal, call: requests.AnyCall, answer: bytes
) -> bytes:
    """Without the subjects that the caller may not see."""
    if type(call) not in FILTERED:
        return answer
    rows = msgspec.json.decode(answer)
    seen = [row for row in rows if _may_see(ctx, principal, call, row)]
    if rows and not seen and isinstance(call, requests.ListPlaces):
        raise no_schema(call.id)
    return answer if len(seen) == len(rows) else msgspec.json.encode(seen)


def _may_see(ctx: Context, principal: Principal, call: requests.AnyCall, row: Any) -> bool:
    if isinstance(call, requests.ListContexts):
        is_default = row == DEFAULT_CONTEXT
        return is_default or _may(ctx, principal, Operation.DESCRIBE, join_subject(row, ""))
    subject: str = row if isinstance(row, str) else row["subject"]
    return _may(ctx, principal, Operation.DESCRIBE, subject)


def check_answer(ctx: Context, principal: Principal, call: requests.AnyCall, answer: bytes) -> None:
    """A subject that is found in another context than it was asked for in has its own rights."""
    if not ctx.authorizer.is_on or not isinstance(call, (requests.GetVersion, requests.LookUp)):
        return
    found = msgspec.json.decode(answer)["subject"]
    is_elsewhere = context_of(found) not in (DEFAULT_CONTEXT, context_of(call.subject))
    if is_elsewhere and not _may(ctx, principal, Operation.DESCRIBE, found):
        raise no_subject(call.subject)


def _may(ctx: Context, principal: Principal, operation: Operation, subject: str) -> bool:
    return may(ctx, principal, operation, ResourceType.TOPIC, topic_of(subject))
