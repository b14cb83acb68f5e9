"""Endpoint of the schema registry, compatible with Confluent's API.

All routes share one endpoint. It finds the row of a request, calls the registry's leader, and
responds with JSON and the content type of Confluent's API. Errors have `error_code` and `message`.

Permissions of the schema registry. A subject `orders-value` or `orders-key` has the permissions
of the topic `orders`; any other subject has those of a topic of its own name. Reading needs
DESCRIBE, registering WRITE, deleting DELETE, setting levels and modes ALTER_CONFIGS. Settings for
all subjects need the same permission on the cluster, and so does mode IMPORT, which chooses ids
that all subjects share. A schema is found by id only by callers that may describe a subject that
has it; for others it does not exist. Registering a schema needs DESCRIBE on its references.
Writing to an alias writes to the subject that it stands for, so setting an alias needs WRITE on
that subject. Listings leave out subjects that the caller may not describe.

The resource name of a subject starts with its context: `:.sales:orders-value` belongs to the
resource `:.sales:orders`, and the context itself to `:.sales:`, so that a prefixed ACL covers all
of it.
"""

import re
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock import __version__
from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import picked
from penstock.broker.api.context import Context
from penstock.broker.api.quota import Throttled
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.permissions import Principal, may
from penstock.gateway.http.audit import audit_call
from penstock.gateway.http.cpu_quota import require_request_time
from penstock.gateway.http.problems import retry_after
from penstock.gateway.http.request_io import principal_of
from penstock.gateway.registry.request import (
    VENDOR,
    RegistryRequest,
    check_media_type,
    context_part,
    path_parts,
)
from penstock.gateway.registry.route_table import PAGES, RegistryRow, find_row
from penstock.state.registry import requests
from penstock.state.registry.compatibility_check import SubjectMode
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.parsed_schemas import SCHEMA_TYPES
from penstock.state.registry.queries import no_schema, no_subject
from penstock.state.registry.subject_names import (
    DEFAULT_CONTEXT,
    EVERYWHERE,
    context_of,
    join_subject,
    seen_from,
)

CLUSTER_NAME: Final = "kafka-cluster"
OPERATIONS: Final[dict[type[requests.RegistryCall], Operation]] = {
    requests.Register: Operation.WRITE,
    requests.LookUp: Operation.DESCRIBE,
    requests.CheckProposal: Operation.DESCRIBE,
    requests.ListVersions: Operation.DESCRIBE,
    requests.GetVersion: Operation.DESCRIBE,
    requests.GetByMetadata: Operation.DESCRIBE,
    requests.GetReferrers: Operation.DESCRIBE,
    requests.DeleteVersion: Operation.DELETE,
    requests.DeleteSubject: Operation.DELETE,
    requests.DeleteContext: Operation.DELETE,
    requests.GetConfig: Operation.DESCRIBE_CONFIGS,
    requests.PutConfig: Operation.ALTER_CONFIGS,
    requests.DeleteConfig: Operation.ALTER_CONFIGS,
    requests.GetMode: Operation.DESCRIBE_CONFIGS,
    requests.PutMode: Operation.ALTER_CONFIGS,
    requests.DeleteMode: Operation.ALTER_CONFIGS,
}
SUFFIXES: Final = ("-value", "-key")
BY_ID: Final = (requests.GetById, requests.GetByGuid, requests.ListIdsOfGuid)
FILTERED: Final = frozenset(
    {requests.ListSubjects, requests.ListSchemas, requests.ListPlaces, requests.ListContexts}
)


def topic_of(subject: str) -> str:
    """Returns the topic of a subject; removes only the last suffix: `a-key-value` belongs to
    `a-key`."""
    suffix = next((one for one in SUFFIXES if subject.endswith(one)), "")
    return subject.removesuffix(suffix)


async def require(ctx: Context, principal: Principal, call: requests.AnyCall) -> None:
    """Raises Rejected if `principal` lacks the permissions of a call."""
    kind = type(call)
    if kind in FILTERED:
        return
    if isinstance(call, BY_ID):
        await _require_visible(ctx, principal, call)
        return
    operation = OPERATIONS.get(kind)
    subject: str | None = getattr(call, "subject", None)
    is_allowed = False
    if operation is not None and subject is not None:
        is_allowed = _may(ctx, principal, operation, subject)
    if operation is not None and (subject is None or _affects_all(call)):
        is_everywhere = may(ctx, principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)
        is_allowed = is_everywhere and (is_allowed or subject is None)
    if not is_allowed or not all(
        _may(ctx, principal, needed, other) for needed, other in _other_subjects(call)
    ):
        raise Rejected(RegistryErrorCode.FORBIDDEN, "User is denied this operation on this subject")


def _affects_all(call: requests.AnyCall) -> bool:
    """True if a call affects all subjects."""
    if getattr(call, "subject", None) == EVERYWHERE:
        return True
    return isinstance(call, requests.PutMode) and call.mode.upper() == SubjectMode.IMPORT


def _other_subjects(call: requests.AnyCall) -> list[tuple[Operation, str]]:
    """Returns other subjects that a call uses, and the required permissions on them."""
    if isinstance(call, requests.Proposal):
        context = context_of(call.subject)
        return [(Operation.DESCRIBE, seen_from(context, one.subject)) for one in call.references]
    if isinstance(call, requests.PutConfig) and call.alias:
        return [(Operation.WRITE, seen_from(context_of(call.subject), call.alias))]
    return []


async def _require_visible(
    ctx: Context,
    principal: Principal,
    call: requests.GetById | requests.GetByGuid | requests.ListIdsOfGuid,
) -> None:
    """Raises the error for an unknown schema, unless the caller may describe a subject that has
    it."""
    if not ctx.authorizer.is_on:
        return
    if isinstance(call, requests.GetById):
        ids, name = [(call.id, call.subject)], str(call.id)
    else:
        rows = msgspec.json.decode(
            await ctx.produce.registry.ask(requests.ListIdsOfGuid(call.guid))
        )
        ids = [(row["id"], join_subject(row["context"], "")) for row in rows]
        name = call.guid
    for schema_id, found_by in ids:
        places = requests.ListPlaces(id=schema_id, deleted=True, found_by=found_by)
        subjects: list[str] = msgspec.json.decode(await ctx.produce.registry.ask(places))
        if any(_may(ctx, principal, Operation.DESCRIBE, subject) for subject in subjects):
            return
    raise no_schema(name)


async def filter_listing(
    ctx: Context, principal: Principal, call: requests.AnyCall, answer: bytes
) -> bytes:
    """Removes the subjects that the caller may not describe."""
    if type(call) not in FILTERED or not ctx.authorizer.is_on:
        return answer
    rows: list[Any] = msgspec.json.decode(answer)

    def visible(row: Any) -> Any:
        return row if _may_describe(ctx, principal, call, row) else None

    seen = await ctx.metadata.scheduler.do(principal.holder, picked(rows, visible))
    if rows and not seen and isinstance(call, requests.ListPlaces):
        raise no_schema(call.id)
    return answer if len(seen) == len(rows) else msgspec.json.encode(seen)


def _may_describe(ctx: Context, principal: Principal, call: requests.AnyCall, row: Any) -> bool:
    if isinstance(call, requests.ListContexts):
        is_default = row == DEFAULT_CONTEXT
        return is_default or _may(ctx, principal, Operation.DESCRIBE, join_subject(row, ""))
    subject: str = row if isinstance(row, str) else row["subject"]
    return _may(ctx, principal, Operation.DESCRIBE, subject)


def check_answer(ctx: Context, principal: Principal, call: requests.AnyCall, answer: bytes) -> None:
    """Checks the permission on a subject that was found in another context than requested."""
    if not ctx.authorizer.is_on or not isinstance(call, (requests.GetVersion, requests.LookUp)):
        return
    found = msgspec.json.decode(answer)["subject"]
    is_elsewhere = context_of(found) not in (DEFAULT_CONTEXT, context_of(call.subject))
    if is_elsewhere and not _may(ctx, principal, Operation.DESCRIBE, found):
        raise no_subject(call.subject)


def _may(ctx: Context, principal: Principal, operation: Operation, subject: str) -> bool:
    return may(ctx, principal, operation, ResourceType.TOPIC, topic_of(subject))


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
        answer = await filter_listing(self._ctx, principal, call, answer)
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
