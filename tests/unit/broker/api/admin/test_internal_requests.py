"""Schema registry requests between nodes: only nodes may send them, and refusals keep their
numbers.
"""

import msgspec

from penstock.base.errors import ErrorCode
from penstock.broker.api.admin.internal_requests import ask_registry
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.state.registry.errors import RegistryErrorCode
from penstock.state.registry.requests import GetById, Register, RegistryCall, encode_call
from penstock.wire.messages.internal.admin import AskRegistryRequest, AskRegistryResponse
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


async def asked(node: Node, call: RegistryCall | bytes) -> AskRegistryResponse:
    data = call if isinstance(call, bytes) else encode_call(call)
    response = await node.ask(ask_registry, 0, AskRegistryRequest(call=data))
    assert isinstance(response, AskRegistryResponse)
    return response


@run_with(on_node)
async def test_registry_call_is_answered_by_the_topic_leader(node: Node) -> None:
    early = await asked(node, GetById(1))
    assert early.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await node.ctx.produce.registry.ask(Register("s", '"int"', "AVRO"))
    found = await asked(node, GetById(1))
    assert msgspec.json.decode(found.answer)["schema"] == '"int"'
    missing = await asked(node, GetById(2))
    assert missing.number == RegistryErrorCode.SCHEMA_NOT_FOUND
    assert missing.error_message == "Schema 2 not found"


@run_with(on_node)
async def test_malformed_and_unauthorized_registry_calls_are_refused(node: Node) -> None:
    assert (await asked(node, b"?")).error_code == ErrorCode.INVALID_REQUEST
    node.rights.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    denied = await asked(node, GetById(1))
    assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
