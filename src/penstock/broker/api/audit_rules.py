"""Selects the requests that the audit log records, and builds their entries.

Every API of the route table is in one of two tables: `ADMINISTRATIVE`, with a function that lists
the affected resources, or `ORDINARY`. An ordinary request is recorded only if it was denied. A test
fails for an API that is in neither table. Each request has one entry, however many resources it
names.

The outcome of a request is read from the error codes of its response: denied or failed. Requests
with `validate_only` change nothing and are not recorded. Nor are requests between nodes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.broker.api.call import Call
from penstock.security.acl_types import NODE_USER, ResourceType
from penstock.security.audit_entries import DENIED, DONE, FAILED, AuditedCall, named
from penstock.wire.schema import wire_of

Resources = Callable[[Any], Iterable[str]]

DENIALS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)
HIDDEN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""Errors that hide a resource from callers without any permission on it."""
SASL_AUTHENTICATE: Final = 36
ROWS_MAX: Final = 100_000
CONFIG_KINDS: Final = {2: "topic", 4: "broker", 8: "logger", 16: "client-metrics", 32: "group"}
NODE: Final = f"User:{NODE_USER}"


def _topics(request: Any) -> tuple[str, ...]:
    return named("topic", (row.name for row in request.topics))


def _deleted_topics(request: Any) -> tuple[str, ...]:
    rows = request.topics or ()
    names = [row.name if row.name is not None else bytes(row.topic_id).hex() for row in rows]
    return named("topic", [*(request.topic_names or ()), *names])


def _created_acls(request: Any) -> list[str]:
    return [
        f"acl:{_kind(row.resource_type)}:{row.resource_name} {row.principal}"
        for row in request.creations
    ]


def _deleted_acls(request: Any) -> list[str]:
    return [
        f"acl:{_kind(row.resource_type_filter)}:{row.resource_name_filter or '*'} "
        f"{row.principal_filter or '*'}"
        for row in request.filters
    ]


def _kind(number: int) -> str:
    try:
        return ResourceType(number).name.lower()
    except ValueError:
        return str(number)


def _configs(request: Any) -> list[str]:
    """Returns resources with the names of configs, without values, which may be secret."""
    return [
        f"{CONFIG_KINDS.get(row.resource_type, row.resource_type)}:{row.resource_name} "
        + ",".join(sorted(config.name for config in row.configs))
        for row in request.resources
    ]


def _log_dirs(request: Any) -> tuple[str, ...]:
    return named("topic", (topic.name for row in request.dirs for topic in row.topics))


def _elections(request: Any) -> tuple[str, ...]:
    rows = request.topic_partitions
    return ("topic:*",) if rows is None else named("topic", (row.topic for row in rows))


def _moves(request: Any) -> list[str]:
    return [
        f"topic:{topic.name}-{row.partition_index}"
        for topic in request.topics
        for row in topic.partitions
    ]


def _group(request: Any) -> tuple[str, ...]:
    return (f"group:{request.group_id}",)


def _group_topics(request: Any) -> tuple[str, ...]:
    names = (row.name if hasattr(row, "name") else row.topic_name for row in request.topics)
    return (*_group(request), *named("topic", names))


def _quotas(request: Any) -> list[str]:
    return [
        "quota:"
        + ",".join(f"{part.entity_type}={part.entity_name or '<default>'}" for part in row.entity)
        + " "
        + ",".join(sorted(op.key for op in row.ops))
        for row in request.entries
    ]


def _users(request: Any) -> tuple[str, ...]:
    return named("user", (row.name for row in [*request.deletions, *request.upsertions]))


def _markers(request: Any) -> list[str]:
    return [
        f"topic:{topic.name} producer:{marker.producer_id}"
        for marker in request.markers
        for topic in marker.topics
    ]


ADMINISTRATIVE: Final[dict[int, Resources]] = {
    8: _group,  # OffsetCommit, only from non-members of the group: see `is_audited`.
    19: _topics,
    20: _deleted_topics,
    21: _topics,
    27: _markers,
    30: _created_acls,
    31: _deleted_acls,
    33: _configs,
    34: _log_dirs,
    37: _topics,
    42: lambda request: named("group", request.groups_names),
    43: _elections,
    44: _configs,
    45: _moves,
    47: _group_topics,
    49: _quotas,
    51: _users,
    57: lambda request: named("feature", (row.feature for row in request.feature_updates)),
    64: lambda request: (f"node:{request.broker_id}",),
    91: _group_topics,
    92: _group_topics,
    30006: lambda request: (*_group(request), f"topic:{request.topic}"),
    30031: lambda request: ("cluster:encryption keys",),
    30040: lambda request: (f"user:{request.user}",),
    30042: lambda request: (f"access-key:{request.access_key}",),
}
"""Functions that list the resources of a request, by API key."""

FREQUENT: Final = frozenset({8, 27})
"""Requests that programs may send often: the audit log counts them instead of listing each."""

ORDINARY: Final = frozenset(
    {
        *range(4),  # Produce, Fetch, ListOffsets, Metadata
        *range(9, 19),  # offsets, coordinators, members, group descriptions, SASL, ApiVersions
        *range(22, 27),  # producers and their transactions, OffsetForLeaderEpoch
        *(28, 29, 32, 35, SASL_AUTHENTICATE, 46, 48, 50, 55, 60, 61, 65, 66),
        *(68, 69, 74, 75, 76, 77, 78, 79, 90),
        *(30001, 30002, 30003, 30004, 30005, 30007, 30010, 30030, 30032, 30041),
    }
)


def is_told(key: int, request: Any) -> bool:
    """True if the request changes something and must be recorded even if it is not denied."""
    if key not in ADMINISTRATIVE or getattr(request, "validate_only", False):
        return False
    # Members of groups commit all the time; a commit by a non-member resets the group.
    return key != 8 or (not request.member_id and request.generation_id_or_member_epoch < 0)


def audited_call(call: Call, response: Any) -> AuditedCall | None:
    """Returns the audit entry of an answered call; None: it is not recorded."""
    key, asked = call.route.key, call.asked
    codes = set(codes_in(response))
    denials = codes & (DENIALS | HIDDEN if call.denied else DENIALS)
    if (asked is None and not denials) or call.principal == NODE:
        return None
    outcome = DENIED if denials else FAILED if codes else DONE
    resources = ADMINISTRATIVE[key](asked) if asked is not None else call.denied or ()
    caller = call.caller
    return AuditedCall(
        "kafka",
        caller.principal,
        caller.peer,
        call.route.name,
        outcome,
        tuple(resources),
        tuple(sorted(code.name for code in (denials or codes))),
        is_frequent=key in FREQUENT,
    )


def codes_in(response: Any) -> Iterator[ErrorCode]:
    """Yields the error codes anywhere in a response, of at most `ROWS_MAX` rows."""
    waiting = [response]
    for _ in range(ROWS_MAX):
        if not waiting:
            return
        row = waiting.pop()
        for field in wire_of(type(row)).fields:
            value = getattr(row, field.name)
            if field.name == "error_code":
                if value:
                    yield ErrorCode(value)
            elif hasattr(type(value), "WIRE"):
                waiting.append(value)
            elif isinstance(value, list | tuple) and value and hasattr(type(value[0]), "WIRE"):
                waiting.extend(value)
