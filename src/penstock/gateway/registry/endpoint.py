"""Endpoint of the schema registry, compatible with Confluent's API.

All routes share one endpoint. It finds the row of a request, calls the registry's leader, and
responds with JSON and the content type of Confluent's API. Errors have `error_code` and `message`.
"""

import re

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock import __version__
from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.quota import Throttled
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.audit import audit_call
from penstock.gateway.http.cpu_quota import require_request_time
from penstock.gateway.http.problems import retry_after
from penstock.gateway.http.request_io import principal_of
from penstock.gateway.registry.permissions import check_answer, filter_listing, require
from penstock.gateway.registry.request import (
    VENDOR,
    RegistryRequest,
    check_media_type,
    context_part,
    path_parts,
)
from penstock.gateway.registry.route_table import PAGES, RegistryRow, find_row
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.parsed_schemas import SCHEMA_TYPES

MEDIA_TYPE = f"{VENDOR}.v1+json"
PLAIN_JSON = "application/json"
ROOTS = ("/subjects", "/schemas", "/compatibility", "/config", "/mode", "/contexts")
TOO_MANY_REQUESTS = 429
NO_CONTENT = 204
NULL = b"null"
METHODS = ("GET", "POST", "PUT", "DELETE")
NUMBERS = {
    ErrorCode.REQUEST_TIMED_OUT: RegistryErrorCode.TIMEOUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: RegistryErrorCode.UNKNOWN_LEADER,
    ErrorCode.NOT_COORDINATOR: RegistryErrorCode.UNKNOWN_LEADER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: RegistryErrorCode.UNKNOWN_LEADER,
}


def registry_routes(gateway: Gateway) -> list[Route]:
    """Returns the routes of the registry."""
    endpoint = RegistryEndpoint(gateway)
    fixed = (endpoint.types, endpoint.cluster, endpoint.version)
    routes = [Route(path, page) for path, page in zip(PAGES, fixed, strict=True)]
    for root in ROOTS:
        routes.append(Route(root, endpoint.answer, methods=list(METHODS)))
        routes.append(_below(root, endpoint))
    return routes


def _below(root: str, endpoint: "RegistryEndpoint") -> Route:
    """Makes a route whose path may contain line breaks, which the registry refuses itself."""
    route = Route(f"{root}/{{rest:path}}", endpoint.answer, methods=list(METHODS))
    route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return route


class RegistryEndpoint:
    """Serves all routes of the registry."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._ctx = gateway.ctx

    async def answer(self, request: Request) -> Response:
        try:
            context, parts = context_part(path_parts(request))
            method = "GET" if request.method == "HEAD" else request.method
            row, path, is_known = find_row(method, parts)
            if row is None:
                missing = "405 Method Not Allowed" if is_known else "404 Not Found"
                raise HTTPException(405 if is_known else 404, f"HTTP {missing}")
            if request.method in ("POST", "PUT"):
                check_media_type(request)
            parsed = RegistryRequest(path, request.query_params, await request.body(), context)
            return await self._answer(request, row, parsed)
        except Rejected as rejected:
            return _error(request, rejected.number, rejected.message or "")
        except Throttled as throttled:
            response = _error(request, TOO_MANY_REQUESTS, throttled.message or "")
            response.headers["retry-after"] = retry_after(throttled)
            return response
        except Refused as refused:
            number = NUMBERS.get(refused.code, RegistryErrorCode.STORE)
            return _error(request, number, refused.message or refused.code.name)
        except HTTPException as error:
            return _error(request, error.status_code, str(error.detail))

    async def _answer(
        self, request: Request, row: RegistryRow, parsed: RegistryRequest
    ) -> Response:
        call = row.call(parsed)
        require_request_time(self._gateway, request)
        principal = principal_of(request)
        error: int | None = RegistryErrorCode.STORE
        try:
            await require(self._ctx, principal, call)
            answer = await self._ctx.produce.registry.ask(call)
            error = None
        except Rejected as rejected:
            error = rejected.number
            raise
        finally:
            audit_call(self._gateway, request, call, error)
        check_answer(self._ctx, principal, call, answer)
        if answer == NULL:
            return Response(status_code=NO_CONTENT)
        if row.is_raw:
            text: str = msgspec.json.decode(answer)["schema"]
            return Response(text, media_type=_media_type(request))
        answer = filter_listing(self._ctx, principal, call, answer)
        return Response(answer, media_type=_media_type(request))

    # -- static pages -----------------------------------------------------------------------

    async def types(self, request: Request) -> Response:
        return _json(request, list(SCHEMA_TYPES))

    async def cluster(self, request: Request) -> Response:
        cluster_id = self._ctx.image.cluster_id
        clusters = {"kafka-cluster": cluster_id, "schema-registry-cluster": "penstock"}
        return _json(request, {"scope": {"path": [], "clusters": clusters}, "id": ""})

    async def version(self, request: Request) -> Response:
        return _json(request, {"version": __version__, "commitId": "penstock"})


def _json(request: Request, value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type=_media_type(request))


def _error(request: Request, number: int, message: str) -> Response:
    body = msgspec.json.encode({"error_code": int(number), "message": message})
    status = int(number) // 100 if number >= 1000 else int(number)
    return Response(body, status, media_type=_media_type(request))


def _media_type(request: Request) -> str:
    """Returns Confluent's media type, unless the client accepts only plain JSON."""
    accept = request.headers.get("accept", "")
    return PLAIN_JSON if PLAIN_JSON in accept and VENDOR not in accept else MEDIA_TYPE
