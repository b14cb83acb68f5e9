"""Groups of all kinds: list, describe, delete, configure.

Committed offsets of consumer groups, for clients that poll a topic as a log.
"""

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.groups import Commit
from penstock.gateway.core.topics import GROUP_KIND
from penstock.gateway.http.problems import entry_of, problem
from penstock.gateway.http.request_io import json_answer, no_content, principal_of, read_json, text
from penstock.gateway.rest.endpoint import Parameter, RestEndpoint
from penstock.gateway.rest.topics import ConfigsAnswer, configs_answer, read_configs

MULTI_STATUS = 207
COMMITS_MAX = 10_000


class PositionEntry(Struct, forbid_unknown_fields=True):
    """Next offset that the group reads in a partition."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = None


class CommitBody(Struct, forbid_unknown_fields=True):
    """One offset to commit, or several in `offsets`."""

    group: str
    topic: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    metadata: str | None = None
    offsets: list[PositionEntry] | UnsetType = UNSET


class CommitError(Struct):
    index: int
    status: int
    code: str
    detail: str


class CommitAnswer(Struct):
    """Number of committed offsets, and the errors of the others."""

    committed: int
    errors: list[CommitError] = []


class PositionAnswer(Struct):
    """Progress of a group in a partition."""

    partition: int
    offset: int | None
    end_offset: int | None
    lag: int | None


class PositionsAnswer(Struct):
    group: str
    topic: str
    partitions: list[PositionAnswer]


async def commit(gateway: Gateway, request: Request) -> Response:
    body = await read_json(request, CommitBody)
    commits = _commits(body)
    if not commits or len(commits) > COMMITS_MAX:
        why = f"invalid number of offsets {len(commits)}: send 1 to {COMMITS_MAX} at a time"
        raise Refused(ErrorCode.INVALID_REQUEST, why)
    answers = await gateway.groups.commit(principal_of(request), body.group, commits)
    refused = [answer for answer in answers if answer is not None]
    errors = [
        {"index": at, **entry_of(answer)} for at, answer in enumerate(answers) if answer is not None
    ]
    if len(refused) == len(answers):
        return problem(refused[0], errors=errors)
    status = MULTI_STATUS if refused else 200
    return json_answer({"committed": len(answers) - len(refused), "errors": errors}, status)


def _commits(body: CommitBody) -> list[Commit]:
    one = (body.topic, body.partition, body.offset)
    if isinstance(body.offsets, list):
        if any(value is not UNSET for value in one):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "both offsets and topic, partition or offset are set: send only one of these",
            )
        return [
            Commit(entry.topic, entry.partition, entry.offset, entry.metadata)
            for entry in body.offsets
        ]
    topic, partition, offset = one
    if not (isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int)):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "missing offsets to commit: send topic, partition and offset, or offsets",
        )
    return [Commit(topic, partition, offset, body.metadata)]


async def positions(gateway: Gateway, request: Request) -> Response:
    principal = principal_of(request)
    topic = gateway.topic_to(principal, Operation.DESCRIBE, text(request, "topic"))
    group = text(request, "group")
    known = await gateway.groups.positions(principal, group, topic)
    ends = (await gateway.topics.offsets(principal, topic)).end
    rows = []
    for index in range(len(topic.partitions)):
        offset, end = known.get(index), ends.get(index)
        lag = None if offset is None or end is None else max(0, end - offset)
        rows.append(PositionAnswer(index, offset, end, lag))
    return json_answer(PositionsAnswer(group, topic.name, rows))


class GroupRow(Struct):
    group: str
    kind: str
    state: str


class GroupsAnswer(Struct):
    groups: list[GroupRow]


class MemberAnswer(Struct):
    member_id: str
    client_id: str
    host: str


class GroupAnswer(Struct):
    group: str
    kind: str
    state: str
    members: list[MemberAnswer]


async def list_groups(gateway: Gateway, request: Request) -> Response:
    found = await gateway.groups.all(principal_of(request))
    return json_answer(GroupsAnswer([GroupRow(*row) for row in found]))


async def describe_group(gateway: Gateway, request: Request) -> Response:
    found = await gateway.groups.one(principal_of(request), request.path_params["group"])
    members = [MemberAnswer(*member) for member in found.members]
    return json_answer(GroupAnswer(found.group, found.kind, found.state, members))


async def delete_group(gateway: Gateway, request: Request) -> Response:
    await gateway.groups.delete(principal_of(request), request.path_params["group"])
    return no_content()


async def show_configs(gateway: Gateway, request: Request) -> Response:
    principal, group = principal_of(request), request.path_params["group"]
    return configs_answer(await gateway.topics.configs(principal, GROUP_KIND, group))


async def alter_configs(gateway: Gateway, request: Request) -> Response:
    values = await read_configs(request)
    principal, group = principal_of(request), request.path_params["group"]
    await gateway.topics.alter_configs(principal, GROUP_KIND, group, values)
    return no_content()


ENDPOINTS = (
    RestEndpoint("GET", "/groups", "list groups of all kinds", list_groups, answer=GroupsAnswer),
    RestEndpoint(
        "GET",
        "/groups/{group}",
        "describe a group and its members",
        describe_group,
        answer=GroupAnswer,
        refusals=(403, 404, 503),
    ),
    RestEndpoint(
        "DELETE",
        "/groups/{group}",
        "delete a group without members, and its committed offsets",
        delete_group,
        status=204,
        refusals=(403, 404, 409, 503),
    ),
    RestEndpoint(
        "GET",
        "/groups/{group}/configs",
        "list all configs of a group, and whether each is set on the group",
        show_configs,
        answer=ConfigsAnswer,
        refusals=(403,),
    ),
    RestEndpoint(
        "PATCH",
        "/groups/{group}/configs",
        "set configs of a group, such as leases, retries and dead letters; null resets a config "
        "to its default",
        alter_configs,
        body=dict[str, str | int | float | bool | None],
        status=204,
        refusals=(403, 422),
    ),
    RestEndpoint(
        "POST",
        "/offsets/commit",
        "commit offsets of a consumer group",
        commit,
        body=CommitBody,
        answer=CommitAnswer,
        description=(
            "An offset is the next one that the group reads. Only for groups without members, "
            "which poll with mode=log. Status 409: the group is of another kind, or has members."
        ),
        refusals=(403, 404, 409, 422, 503),
    ),
    RestEndpoint(
        "GET",
        "/offsets",
        "show a consumer group's committed offsets and lag in a topic",
        positions,
        parameters=(
            Parameter("group", "the consumer group", is_required=True),
            Parameter("topic", "the topic", is_required=True),
        ),
        answer=PositionsAnswer,
        refusals=(403, 404, 503),
    ),
)
