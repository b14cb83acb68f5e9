"""Families of APIs: what each handler sees of the node."""

from dataclasses import fields

import pytest

from penstock.broker.api.context import ApiFamily, Context
from penstock.broker.api.route_row import Route
from penstock.broker.api.routes import ROUTES
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

FIELDS_MAX = 12


@run_with(on_node)
async def test_family_has_at_most_a_dozen_fields(node: Node) -> None:
    kinds = [Context, *map(type, node.ctx.families)]
    assert {kind: len(fields(kind)) for kind in kinds if len(fields(kind)) > FIELDS_MAX} == {}
    assert len(node.ctx.families) == len(fields(node.ctx))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
@run_with(on_node)
async def test_handler_is_given_the_family_it_asks_for(node: Node, *, route: Route) -> None:
    wanted = route.handler.__annotations__["ctx"]
    assert issubclass(wanted, ApiFamily)

    assert isinstance(node.ctx.of(route.handler), wanted)
