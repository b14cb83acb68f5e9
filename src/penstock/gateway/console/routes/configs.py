"""Configs: those that a topic can have, and those of a node with the source of each value.

Both come from the handler of DescribeConfigs, with the caller's permissions; passwords have no
value. Bounds: the tables of configs have a fixed size, some hundred rows.
"""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation
from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.visibility import visibility_of
from penstock.gateway.core.cluster_types import TOPIC_CONFIGS
from penstock.gateway.core.coordinator_calls import raise_for
from penstock.gateway.http.request_io import json_answer
from penstock.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

BROKER_KIND = 4
SOURCES = {2: "set for this node", 3: "set for all nodes", 4: "config file or option", 5: "default"}
NODE_DIGITS_MAX = 10


class TopicConfigRow(Struct):
    name: str
    type: str
    default: str | None
    doc: str


class TopicConfigsAnswer(Struct):
    configs: list[TopicConfigRow]


class NodeConfigRow(Struct):
    name: str
    value: str | None
    source: str
    is_set: bool
    is_read_only: bool
    is_sensitive: bool
    default: str | None
    doc: str


class NodeConfigsAnswer(Struct):
    node_id: int
    configs: list[NodeConfigRow]


async def list_topic_configs(console: Console, request: Request) -> Response:
    rows = [
        TopicConfigRow(one.name, one.type.name.lower(), one.default, one.doc)
        for one in TOPIC_CONFIGS
        if not one.is_inert and not one.is_internal
    ]
    return json_answer(TopicConfigsAnswer(rows))


async def list_node_configs(console: Console, request: Request) -> Response:
    visibility = visibility_of(console.ctx, request)
    # Checked here, because requests to other nodes have this node's permissions.
    if not visibility.cluster(Operation.DESCRIBE_CONFIGS):
        raise Refused(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{visibility.principal} lacks DESCRIBE_CONFIGS permission on the cluster: ask an "
            "administrator to grant it",
        )
    node_id = _node_of(console, request.path_params["id"])
    asked = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=BROKER_KIND, resource_name=str(node_id), configuration_keys=None
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    gateway = console.gateway
    if node_id == console.ctx.node_id:
        answer = await gateway.handlers.ask(visibility.principal, asked, DescribeConfigsResponse)
    else:
        answer = await gateway.coordinators.ask_node(node_id, asked, DescribeConfigsResponse)
    (found,) = answer.results
    raise_for(found.error_code, found.error_message)
    rows = [
        NodeConfigRow(
            one.name,
            None if one.is_sensitive else one.value,
            SOURCES.get(one.config_source, "default"),
            one.config_source != 5,
            one.read_only,
            one.is_sensitive,
            next((row.value for row in one.synonyms if row.source == 5), None),
            one.documentation or "",
        )
        for one in found.configs
    ]
    return json_answer(NodeConfigsAnswer(node_id, rows))


def _node_of(console: Console, text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= NODE_DIGITS_MAX
    if not is_number or int(text) not in console.ctx.image.brokers:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"node {text[:40]} is not in the cluster"
        )
    return int(text)


ROWS = (
    ConsoleRow("GET", "/configs", "list the configs that a topic can have", list_topic_configs),
    ConsoleRow(
        "GET", "/nodes/{id}/configs", "list a node's configs with their sources", list_node_configs
    ),
)
