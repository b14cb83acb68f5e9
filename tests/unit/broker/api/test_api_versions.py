"""ApiVersions: the table of what is spoken, and who may ask for it how."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.api_versions import FEATURES, api_versions, unsupported
from penstock.broker.api.routes import ROUTES
from penstock.wire.messages import OWN_KEYS
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node, through_wire

TOLD = [route for route in ROUTES if route.key < OWN_KEYS]


def request(name: str = "client", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@pytest.mark.parametrize("version", range(5))
@run_with(on_node)
async def test_api_versions_equals_the_route_table(node: Node, *, version: int) -> None:
    response: ApiVersionsResponse = await node.ask(api_versions, version, request())
    assert response.error_code == 0
    found = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert found == {route.key: route.advertised or route.versions for route in TOLD}
    assert len(found) == len(response.api_keys)


def test_produce_is_advertised_from_version_0() -> None:
    table = {row.api_key: row for row in unsupported().api_keys}
    assert (table[0].min_version, table[0].max_version) == (0, 13)


@run_with(on_node)
async def test_features_of_level_0_are_hidden_from_old_versions(
    node: Node,
) -> None:
    for version, lowest in ((3, 1), (4, 0)):
        response = await node.ask(api_versions, version, request())
        supported = {row.name: row.min_version for row in response.supported_features}
        assert supported == dict.fromkeys(FEATURES, lowest)
        finalized = {row.name: row.max_version_level for row in response.finalized_features}
        assert finalized == FEATURES


@pytest.mark.parametrize(
    ("name", "version", "good"),
    [
        ("apache-kafka-java", "4.1.0", True),
        ("a", "1", True),
        ("", "1.0", False),
        ("client", "", False),
        ("-client", "1.0", False),
        ("client.", "1.0", False),
        ("client", "1.0 ", False),
        ("client\n", "1.0", False),
        ("clïent", "1.0", False),
    ],
)
@run_with(on_node)
async def test_invalid_client_names_are_refused(
    node: Node, *, name: str, version: str, good: bool
) -> None:
    response = await node.ask(api_versions, 3, request(name, version))
    assert response.error_code == (0 if good else ErrorCode.INVALID_REQUEST)
    assert bool(response.api_keys) == good
    # Before version 3 the request carries no client name.
    assert (await node.ask(api_versions, 2, request(name, version))).error_code == 0


def test_unknown_version_is_answered_in_version_0_with_the_table() -> None:
    response = through_wire(unsupported(), 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {row.api_key for row in response.api_keys} == {route.key for route in TOLD}


def test_node_apis_are_not_advertised_to_clients() -> None:
    untold = {route for route in ROUTES if route not in TOLD}
    assert untold == {route for route in ROUTES if route.key >= OWN_KEYS}
    assert "TellQueue" in {route.name for route in untold}
