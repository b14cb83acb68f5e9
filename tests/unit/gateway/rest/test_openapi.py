"""OpenAPI document and HTML page: complete, valid, self-contained."""

import json
import re

from penstock.gateway.rest import openapi
from penstock.gateway.rest.route_table import ENDPOINTS
from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web


def test_every_route_is_described_and_every_reference_resolves() -> None:
    described = json.loads(openapi.document("1.2.3"))
    for row in ENDPOINTS:
        operation = described["paths"][row.path][row.method.lower()]
        assert operation["summary"]
        there = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert there == set(openapi.PATH_NAMES.findall(row.path))
    schemas = described["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)):
        assert name in schemas


def test_operation_ids_are_unique() -> None:
    names = [openapi.operation_id(row) for row in ENDPOINTS]
    assert len(names) == len(set(names))


def test_page_shows_every_route_and_loads_nothing() -> None:
    page = openapi.page("1.2.3").decode()
    for row in ENDPOINTS:
        assert f"<code>{row.path}</code>" in page
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page


@run_with(on_web)
async def test_document_and_page_are_served(web: Web) -> None:
    docs, described = await web.get("/docs"), await web.get("/openapi.json")
    assert docs.headers["content-type"].startswith("text/html")
    assert described.json["openapi"] == "3.1.0"
    landing = (await web.get("/")).json
    assert "POST /topics/{name}/messages" in landing["links"]
