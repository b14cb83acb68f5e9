"""Endpoint for AWS SDKs: authenticates, parses, executes and answers SQS and SNS requests.

SQS and SNS share the port with the other protocols: requests are POST to `/`, or to a queue's own
URL. Authentication comes first. A request signed with a user's access key acts as that user. A key
of `sqs.credentials` acts as a user of its own; if any of these is set, every request must be
signed. Signatures are verified (`sigv4`) if there are keys, or if authorization is enabled. Clients
that do not sign may authenticate as over HTTP; otherwise they are anonymous, and permissions
decide.

SDKs send many small requests, so these bypass the application: an `AwsFront` before it recognizes
them by their path and answers them.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.base.errors import Refused
from penstock.gateway.core.cluster_types import UserRecord
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.move_tasks import MoveTasks
from penstock.gateway.http.audit import DENIED_STATUSES, audit_action
from penstock.gateway.http.authentication import note_failure
from penstock.gateway.http.cpu_quota import require_request_time
from penstock.gateway.http.problems import PRINCIPAL, answer_http_error
from penstock.gateway.http.request_io import ClientWatch, principal_of
from penstock.gateway.sns.actions import SNS_ACTIONS
from penstock.gateway.sqs.call import AwsCall
from penstock.gateway.sqs.errors import Fault, fault_of
from penstock.gateway.sqs.protocols import AwsProtocol, JsonProtocol, ParsedAction, QueryProtocol
from penstock.gateway.sqs.queue_names import ACCOUNT, REGION
from penstock.gateway.sqs.requests import read_request
from penstock.gateway.sqs.sigv4 import SignedRequest, claim_of, verify

TARGET = "x-amz-target"
CREDENTIALS = "sqs.credentials"
QUEUES = f"/{ACCOUNT}/"
TRACE_HEADER = "x-amzn-trace-id"
TRACE_CHARS_MAX = 256


class AwsFront:
    """Wraps the application: answers AWS SDKs, and passes on all other requests."""

    def __init__(self, app: Starlette, gateway: Gateway, moves: MoveTasks) -> None:
        self._app = app
        self._endpoint = AwsEndpoint(gateway, moves)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        queue = _queue_of(scope)
        if queue is None:
            await self._app(scope, receive, send)
            return
        scope["app"] = self._app
        scope["path_params"] = {"queue": queue} if queue else {}
        request = Request(scope, receive)
        try:
            response = await self._endpoint.answer(request)
        except HTTPException as error:
            response = await answer_http_error(request, error)
        except ClientDisconnect:
            return
        await response(scope, receive, send)


def _queue_of(scope: Scope) -> str | None:
    """Returns the queue in an SDK request's path, "" for none; None if it is not from an SDK."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path: str = scope["path"]
    if path == "/":
        return ""
    queue = path.removeprefix(QUEUES)
    return None if queue == path or not queue or "/" in queue else queue


class AwsEndpoint:
    """Endpoint of SQS and SNS."""

    def __init__(self, gateway: Gateway, moves: MoveTasks) -> None:
        self._gateway = gateway
        self._moves = moves
        self._keys = Keys()
        self._keys_of: tuple[object, object] = (None, None)

    async def answer(self, request: Request) -> Response:
        request_id = str(uuid.UUID(bytes=self._gateway.ctx.random.random_bytes(16), version=4))
        target = request.headers.get(TARGET)
        speaker: AwsProtocol = (
            QueryProtocol(request_id) if target is None else JsonProtocol(target, request_id)
        )
        body = await request.body()
        parsed: ParsedAction | None = None
        failure: Fault | None = None
        try:
            region = await self._authenticate(request, body)
            call = self._call(request, region)
            parsed = speaker.read(body)
            require_request_time(self._gateway, request)
            if "queue" in request.path_params:
                # Older SDKs send to the queue's URL, and may omit it in the request.
                parsed.values.setdefault("QueueUrl", request.path_params["queue"])
            action = parsed.action
            answer = await action.handler(call, read_request(action.request, parsed.values))
            return speaker.result(parsed, answer)
        except Fault as fault:
            failure = fault
            return speaker.error(fault)
        except Refused as refused:
            failure = fault_of(refused)
            return speaker.error(failure)
        finally:
            self._audit(request, parsed, failure)

    def _audit(self, request: Request, parsed: ParsedAction | None, failure: Fault | None) -> None:
        name = parsed.name if parsed is not None else "Authenticate"
        values = parsed.values if parsed is not None else {}
        fault = (failure.name, failure.status) if failure is not None else None
        if parsed is not None or (failure is not None and failure.status in DENIED_STATUSES):
            is_sns = parsed is not None and SNS_ACTIONS.get(name) is parsed.action
            kind = "sns" if is_sns else "sqs"
            audit_action(self._gateway, request, kind, name, values, fault)

    async def _authenticate(self, request: Request, body: bytes) -> str | None:
        """Sets the request's principal; returns the region of its signature. Raises Fault."""
        node, keys = self._gateway.ctx, self._known_keys()
        if PRINCIPAL in request.scope or not (keys.users or node.authorizer.is_on):
            return region_of(request.headers.get("authorization", ""))
        try:
            signed = _signed(request, body)
            claim = claim_of(signed)
            if claim is None and not keys.must_sign:
                return None
            access_key = verify(signed, claim, keys.secrets, node.clock.now_ms())
        except Fault as fault:
            await note_failure(node, request.scope, fault.message)
            raise
        request.scope[PRINCIPAL] = f"User:{keys.users[access_key]}"
        return claim.region if claim else None

    def _call(self, request: Request, region: str | None) -> AwsCall:
        return AwsCall(
            self._gateway,
            principal_of(request),
            f"{request.url.scheme}://{request.headers.get('host') or 'localhost'}",
            region or REGION,
            self._moves,
            lambda: ClientWatch(request),
            _trace_of(request),
        )

    def _known_keys(self) -> "Keys":
        """Made again only when a user or the config has changed."""
        node = self._gateway.ctx
        text, known = node.configs.text(CREDENTIALS), node.image.users
        if self._keys_of[0] is not known or self._keys_of[1] != text:
            self._keys_of = known, text
            self._keys = keys_of(known, read_credentials(text or ""))
        return self._keys


@dataclass(frozen=True, slots=True)
class Keys:
    """All access keys."""

    secrets: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    """Owner of each access key."""
    must_sign: bool = False
    """True if every request must be signed."""


def keys_of(users: Mapping[str, UserRecord], static: Mapping[str, str]) -> Keys:
    secrets, owners = dict(static), {access_key: access_key for access_key in static}
    for name, user in users.items():
        for access_key, record in user.access_keys.items():
            secrets[access_key] = record.secret
            owners[access_key] = name
    return Keys(secrets, owners, must_sign=bool(static))


def read_credentials(text: str) -> dict[str, str]:
    """Parses KEY:SECRET,KEY:SECRET into secrets by access key; the config's validator checked the
    syntax."""
    pairs = [item.strip().partition(":") for item in text.split(",")] if text else []
    return {access_key: secret for access_key, _, secret in pairs}


def _signed(request: Request, body: bytes) -> SignedRequest:
    scope = request.scope
    return SignedRequest(
        request.method,
        scope.get("raw_path") or b"/",
        scope["query_string"],
        [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
        body,
    )


def _trace_of(request: Request) -> str | None:
    """Returns the trace for messages without one of their own; ignores malformed ones."""
    trace: str | None = request.headers.get(TRACE_HEADER)
    is_one = trace is not None and 0 < len(trace) <= TRACE_CHARS_MAX and trace.isascii()
    return trace if is_one and trace is not None and trace.isprintable() else None


def region_of(authorization: str) -> str | None:
    """Returns the region of a signature that is not verified."""
    parts = authorization.split("/", 3)
    return parts[2] if len(parts) == 4 else None
