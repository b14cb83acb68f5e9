"""OpenAPI 3.1 description of the REST API, generated from the route table, and its HTML page.

Schemas come from the types of requests and responses. The page is one file without external
resources, so it works without internet access.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from http import HTTPStatus
from typing import Any

import msgspec

from penstock.gateway.http.problems import MEDIA_TYPE
from penstock.gateway.rest.endpoint import Parameter, RestEndpoint
from penstock.gateway.rest.permissions import ROUTES, shown
from penstock.gateway.rest.route_table import ENDPOINTS

PATH_NAMES = re.compile(r"{(\w+)}")
PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what is wrong, and what may help"},
        "code": {"type": "string", "description": "Kafka's name of the error"},
    },
}


@cache
def document(version: str) -> bytes:
    """Returns the OpenAPI document as JSON."""
    return msgspec.json.encode(describe(version, ENDPOINTS))


def describe(version: str, endpoints: Sequence[RestEndpoint]) -> dict[str, Any]:
    types = _types(endpoints)
    shown, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    schemas = dict(zip(map(str, types), shown, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for row in endpoints:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version,
            "description": "Topics, queues and groups over HTTP. Errors are problem+json.",
        },
        "paths": paths,
        "components": {"schemas": {**components, "Problem": PROBLEM_SCHEMA}},
    }


def _types(endpoints: Sequence[RestEndpoint]) -> list[Any]:
    found: dict[str, Any] = {}
    for row in endpoints:
        for one in (row.body, row.answer):
            if one is not None:
                found.setdefault(str(one), one)
    return list(found.values())


def _operation(row: RestEndpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": HTTPStatus(row.status).phrase}
    if row.answer is not None:
        answer["content"] = {row.media_type: {"schema": schemas[str(row.answer)]}}
    elif row.status != HTTPStatus.NO_CONTENT:
        answer["content"] = {row.media_type: {}}
    operation: dict[str, Any] = {
        "summary": row.summary,
        "operationId": operation_id(row),
        "tags": [row.tag],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in PATH_NAMES.findall(row.path)
        ]
        + [_parameter(one) for one in row.parameters],
        "responses": {str(row.status): answer},
    }
    if row.description:
        operation["description"] = row.description
    if row.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[str(row.body)]}},
        }
    for status in row.refusals:
        operation["responses"][str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    return operation


def operation_id(row: RestEndpoint) -> str:
    words = re.findall(r"\w+", f"{row.method.lower()} {row.path}")
    return "_".join(words)


def _parameter(one: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": one.kind}
    if one.default is not None:
        schema["default"] = one.default
    return {
        "name": one.name,
        "in": "query",
        "required": one.is_required,
        "description": one.meaning,
        "schema": schema,
    }


# -- the page ---------------------------------------------------------------------------------

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 14px/1.4 ui-monospace, monospace }
summary { cursor: pointer; padding: .3rem 0 }
table { border-collapse: collapse; margin: .5rem 0 }
td, th { border-bottom: 1px solid #8884; padding: .2rem .8rem .2rem 0; text-align: left;
  vertical-align: top }
pre { background: #8881; padding: .6rem; overflow: auto }
.method { display: inline-block; min-width: 4.5rem; font-weight: 600 }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } a { color: #8bf } }
"""


PAGE_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'"
)
"""Content-Security-Policy of the page: allows only its own style."""


@cache
def page(version: str) -> bytes:
    """Returns the HTML page that documents all routes."""
    described = describe(version, ENDPOINTS)
    schemas = described["components"]["schemas"]
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>Penstock {escape(version)}</title><style>{STYLE}</style>",
        f"<h1>Penstock {escape(version)} HTTP API</h1>",
        '<p>OpenAPI 3.1: <a href="/openapi.json">/openapi.json</a>. Errors are '
        "<code>application/problem+json</code> with <code>status</code>, <code>code</code> and "
        "<code>detail</code>.</p>",
    ]
    for family in dict.fromkeys(row.tag for row in ENDPOINTS):
        parts.append(f"<h2>{escape(family)}</h2>")
        parts += [
            _section(row, described["paths"][row.path][row.method.lower()], schemas)
            for row in ENDPOINTS
            if row.tag == family
        ]
    return "".join(parts).encode()


def _section(row: RestEndpoint, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    parts = [
        f'<details id="{operation_id(row)}"><summary><span class="method">{row.method}</span>',
        f"<code>{escape(row.path)}</code> {_marked(row.summary)}</summary>",
    ]
    if row.description:
        parts.append(f"<p>{_marked(row.description)}</p>")
    needs = ROUTES.get(f"{row.method} {row.path}")
    if needs is not None:
        parts.append(f"<p>Required permissions: {shown(needs)}</p>")
    if row.parameters:
        parts.append("<table><tr><th>Parameter<th>Default<th>Meaning")
        for one in row.parameters:
            default = "required" if one.is_required else _shown(one.default)
            parts.append(f"<tr><td><code>{one.name}</code><td>{default}<td>{_marked(one.meaning)}")
        parts.append("</table>")
    body = operation.get("requestBody")
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        parts.append(f"<p>Request body</p><pre>{escape(_outline(schema, schemas))}</pre>")
    for status, answer in operation["responses"].items():
        if int(status) < HTTPStatus.BAD_REQUEST:
            parts.append(f"<p>Response {status}</p>")
            parts += [
                f"<pre>{escape(_outline(content['schema'], schemas))}</pre>"
                for content in answer.get("content", {}).values()
                if content
            ]
    if row.refusals:
        refusals = ", ".join(f"{code} {HTTPStatus(code).phrase}" for code in row.refusals)
        parts.append(f"<p>Errors: {refusals}</p>")
    return "".join(parts) + "</details>"


def _marked(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _shown(default: object) -> str:
    return "" if default is None else escape(str(default).lower())


def _outline(schema: dict[str, Any], schemas: dict[str, Any], depth: int = 0) -> str:
    """Renders a schema like JSON, with names and types."""
    indent = "  " * (depth + 1)
    if "$ref" in schema:
        return _outline(schemas[schema["$ref"].rsplit("/", 1)[1]], schemas, depth)
    if "anyOf" in schema:
        return " or ".join(_outline(one, schemas, depth) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"[{_outline(schema.get('items', {}), schemas, depth)}, ...]"
    if schema.get("type") == "object" and "properties" in schema:
        required = schema.get("required", ())
        rows = [
            f"{indent}{name}{'' if name in required else '?'}: {_outline(one, schemas, depth + 1)}"
            for name, one in schema["properties"].items()
        ]
        return "{\n" + ",\n".join(rows) + "\n" + "  " * depth + "}"
    if schema.get("type") == "object":
        return f"{{name: {_outline(schema.get('additionalProperties', {}), schemas, depth)}, ...}}"
    return str(schema.get("type", "any"))
