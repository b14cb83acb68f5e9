"""Groups of all kinds: list, describe, delete, configure."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.topics import GROUP_KIND
from penstock.gateway.http.request_io import json_answer, no_content, principal_of
from penstock.gateway.rest.endpoint import RestEndpoint
from penstock.gateway.rest.topics import ConfigsAnswer, configs_answer, read_configs


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
)
