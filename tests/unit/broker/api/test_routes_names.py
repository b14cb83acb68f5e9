"""Every API is asked with the longest names there are: whatever is said of them is an answer."""

import asyncio
import itertools
from typing import Any

import pytest

from penstock.broker.api.route_row import Route
from penstock.broker.api.routes import ROUTES
from tests.run_with import run_with
from tests.unit.broker.server.world import World, framed, in_world

LONGEST = ("x" * 32_767, "\0" * 32_767, "é" * 16_383)
"""Quoted as Python does, the second takes four times as much."""


def filled(kind: Any, version: int, text: str) -> Any:
    """A request of one row in each list, with the longest texts."""
    values: dict[str, Any] = {}
    for field in kind.WIRE.fields:
        if not field.is_in(version):
            continue
        if field.kind == "string":
            values[field.name] = text
        elif field.kind == "nested":
            values[field.name] = filled(field.of, version, text)
        elif field.kind == "array" and isinstance(field.of, type):
            values[field.name] = [filled(field.of, version, text)]
        elif field.kind == "array":
            values[field.name] = [text] if field.of.kind == "string" else []
        elif field.kind == "uuid":
            values[field.name] = bytes(16)
        elif field.kind in ("bytes", "records"):
            values[field.name] = b""
        elif field.kind == "bool":
            values[field.name] = False
        else:
            values[field.name] = 0
    return kind(**values)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
@run_with(in_world)
async def test_longest_names_are_answered(world: World, *, route: Route) -> None:
    for text, version in itertools.product(LONGEST, set(route.versions)):
        peer = await world.connect()
        peer.send(framed(filled(route.request, version, text), version, 1))
        await asyncio.sleep(120.0)
        assert world.node.ctx.metrics.internal_errors.value == 0
