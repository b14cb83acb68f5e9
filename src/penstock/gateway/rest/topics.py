"""Topics: list, create, describe, delete, add partitions, configure."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import Steps
from penstock.base.ids import show_topic_id
from penstock.gateway.core.cluster_types import TopicImage
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.permissions import Principal
from penstock.gateway.core.topics import TOPIC_KIND, ConfigValue, OffsetBounds
from penstock.gateway.http.audit import set_audited_resources
from penstock.gateway.http.request_io import flag, json_answer, no_content, principal_of, read_json
from penstock.gateway.rest.endpoint import Parameter, RestEndpoint

CREATED = 201


class TopicRow(Struct):
    name: str
    partitions: int
    replication_factor: int


class TopicsAnswer(Struct):
    topics: list[TopicRow]


class TopicBody(Struct, forbid_unknown_fields=True):
    """Topic to create; missing fields take the broker's defaults."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: dict[str, str | int | float | bool] | None = None
    retention_ms: int | None = None


class PartitionAnswer(Struct):
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    start_offset: int | None
    end_offset: int | None


class TopicAnswer(Struct):
    name: str
    topic_id: str
    partitions: list[PartitionAnswer]
    configs: dict[str, str]


class ConfigAnswer(Struct):
    name: str
    value: str | None
    is_set: bool


class ConfigsAnswer(Struct):
    configs: list[ConfigAnswer]


class PartitionsBody(Struct, forbid_unknown_fields=True):
    """New number of partitions, in all."""

    partitions: int


async def list_topics(gateway: Gateway, request: Request) -> Response:
    found = await gateway.topics.all(principal_of(request), internal=flag(request, "internal"))
    rows = [
        TopicRow(topic.name, len(topic.partitions), len(topic.partitions[0].replicas))
        for topic in found
    ]
    return json_answer(TopicsAnswer(rows))


async def create_topic(gateway: Gateway, request: Request) -> Response:
    body = await read_json(request, TopicBody)
    set_audited_resources(request, f"topic:{body.name}")
    configs = {name: config_text(value) for name, value in (body.configs or {}).items()}
    if body.retention_ms is not None:
        configs.setdefault("retention.ms", str(body.retention_ms))
    principal = principal_of(request)
    topic = await gateway.topics.create(
        principal, body.name, body.partitions, body.replication_factor, configs
    )
    # The caller may lack the permission to describe the topic, which is known to be empty.
    nothing = dict.fromkeys(range(len(topic.partitions)), 0)
    shown = _shown(topic, OffsetBounds(nothing, nothing))
    return json_answer(await gateway.ctx.metadata.scheduler.do(principal.holder, shown), CREATED)


async def describe_topic(gateway: Gateway, request: Request) -> Response:
    principal = principal_of(request)
    topic = gateway.topics.one(principal, request.path_params["name"])
    return json_answer(await _described(gateway, principal, topic))


async def _described(gateway: Gateway, principal: Principal, topic: TopicImage) -> TopicAnswer:
    shown = _shown(topic, await gateway.topics.offsets(principal, topic))
    return await gateway.ctx.metadata.scheduler.do(principal.holder, shown)


def _shown(topic: TopicImage, offsets: OffsetBounds) -> Steps[TopicAnswer]:
    rows = []
    for at, record in enumerate(topic.partitions):
        yield
        rows.append(
            PartitionAnswer(
                at,
                record.leader,
                list(record.replicas),
                list(record.isr),
                offsets.start.get(at),
                offsets.end.get(at),
            )
        )
    return TopicAnswer(topic.name, show_topic_id(topic.id), rows, dict(topic.configs))


async def delete_topic(gateway: Gateway, request: Request) -> Response:
    await gateway.topics.delete(principal_of(request), request.path_params["name"])
    return no_content()


async def grow_topic(gateway: Gateway, request: Request) -> Response:
    body = await read_json(request, PartitionsBody)
    principal, name = principal_of(request), request.path_params["name"]
    await gateway.topics.grow(principal, name, body.partitions)
    return json_answer(await _described(gateway, principal, gateway.topics.one(principal, name)))


async def show_configs(gateway: Gateway, request: Request) -> Response:
    principal, name = principal_of(request), request.path_params["name"]
    found = await gateway.topics.configs(principal, TOPIC_KIND, name)
    return configs_answer(found)


async def alter_configs(gateway: Gateway, request: Request) -> Response:
    values = await read_configs(request)
    principal, name = principal_of(request), request.path_params["name"]
    await gateway.topics.alter_configs(principal, TOPIC_KIND, name, values)
    return no_content()


def configs_answer(found: list[ConfigValue]) -> Response:
    return json_answer(
        ConfigsAnswer([ConfigAnswer(one.name, one.value, one.is_set) for one in found])
    )


async def read_configs(request: Request) -> dict[str, str | None]:
    """Reads configs by name; null resets one to its default."""
    body = await read_json(request, dict[str, str | int | float | bool | None])
    if not body:
        raise Refused(ErrorCode.INVALID_REQUEST, "the request names no config: send at least one")
    return {name: None if value is None else config_text(value) for name, value in body.items()}


def config_text(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


ENDPOINTS = (
    RestEndpoint(
        "GET",
        "/topics",
        "list topics",
        list_topics,
        parameters=(
            Parameter("internal", "include topics whose names begin with __", "boolean", False),
        ),
        answer=TopicsAnswer,
    ),
    RestEndpoint(
        "POST",
        "/topics",
        "create a topic",
        create_topic,
        body=TopicBody,
        answer=TopicAnswer,
        status=CREATED,
        refusals=(403, 409, 422),
    ),
    RestEndpoint(
        "GET",
        "/topics/{name}",
        "describe a topic: partitions, leaders, offsets, configs set on it",
        describe_topic,
        answer=TopicAnswer,
        refusals=(403, 404),
    ),
    RestEndpoint(
        "DELETE",
        "/topics/{name}",
        "delete a topic and its records",
        delete_topic,
        status=204,
        refusals=(403, 404),
    ),
    RestEndpoint(
        "POST",
        "/topics/{name}/partitions",
        "add partitions to a topic",
        grow_topic,
        body=PartitionsBody,
        answer=TopicAnswer,
        refusals=(403, 404, 422),
    ),
    RestEndpoint(
        "GET",
        "/topics/{name}/configs",
        "list all configs of a topic, and whether each is set on the topic",
        show_configs,
        answer=ConfigsAnswer,
        refusals=(403, 404),
    ),
    RestEndpoint(
        "PATCH",
        "/topics/{name}/configs",
        "set configs of a topic; null resets a config to its default",
        alter_configs,
        body=dict[str, str | int | float | bool | None],
        status=204,
        refusals=(403, 404, 422),
    ),
)
