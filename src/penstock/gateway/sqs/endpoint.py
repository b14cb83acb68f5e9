"""Where requests of AWS SDKs come in: who asks, what for, and the answer.

SQS and SNS share the port with everything else: requests are POST to `/`, or to a queue's own
URL. Who asks is checked first. Whoever signs with an access key of a user is that user; a key of
`sqs.credentials` is a user of its own, and with any of these set every request must be signed. A
signature is checked (`sigv4`) where there is anything to check it against: keys, or rights. Who
does not sign may say who they are as over HTTP; else they are anonymous, and the rights decide.

SDKs ask often, one small thing at a time, so their requests do not go through the application: an
`AwsFront` before it tells them by their path and answers.
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
from penstock.gateway.sqs.protocols import JsonProtocol, ParsedAction, QueryProtocol, Speaker
from penstock.gateway.sqs.queue_names import ACCOUNT, REGION
from penstock.gateway.sqs.requests import read_request
from penstock.gateway.sqs.sigv4 import SignedRequest, claim_of, verify

TARGET = "x-amz-target"
CREDENTIALS = "sqs.credentials"
QUEUES = f"/{ACCOUNT}/"
TRACE_HEADER = "x-amzn-trace-id"
TRACE_CHARS_MAX = 256


class AwsFront:
    """Wraps the application: answers AWS SDKs, and hands everything else on."""

    def __init__(self, app: Starlette, gateway: Gateway, moves: MoveTasks) -> None:
        self._app = app
        self._entry = AwsEndpoint(gateway, moves)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        queue = _queue_of(scope)
        if queue is None:
            await self._app(scope, receive, send)
            return
        scope["app"] = self._app
        scope["path_params"] = {"queue": queue} if queue else {}
        request = Request(scope, receive)
        try:
            response = await self._entry.answer(request)
        except HTTPException as error:
            response = await answer_http_error(request, error)
        except ClientDisconnect:
            return
        await response(scope, receive, send)


def _queue_of(scope: Scope) -> str | None:
    """The queue that a request of an SDK is sent to, "" for none; None: it is not of an SDK."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path: str = scope["path"]
    if path == "/":
        return ""
    queue = path.removeprefix(QUEUES)
    return None if queue == path or not queue or "/" in queue else queue


class AwsEndpoint:
    """The endpoint of both doors."""

    def __init__(self, gateway: Gateway, moves: MoveTasks) -> None:
        self._gateway = gateway
        self._moves = moves
        self._keys = Keys()
        self._keys_of: tuple[object, object] = (None, None)

    async def answer(self, request: Request) -> Response:
        request_id = str(uuid.UUID(bytes=self._gateway.ctx.random.random_bytes(16), version=4))
        target = request.headers.get(TARGET)
        speaker: Speaker = (
            QueryProtocol(request_id) if target is None else JsonProtocol(target, request_id)
        )
        body = await request.body()
        asked: ParsedAction | None = None
        failure: Fault | None = None
        try:
            region = await self._admit(request, body)
            call = self._call(request, region)
            asked = speaker.read(body)
            require_request_time(self._gateway, request)
            if "queue" in request.path_params:
                # Older SDKs send to the queue's own URL, and may leave it out of the request.
                asked.values.setdefault("QueueUrl", request.path_params["queue"])
            action = asked.action
            answer = await action.handler(call, read_request(action.request, asked.values))
            return speaker.result(asked, answer)
        except Fault as fault:
            failure = fault
            return speaker.error(fault)
        except Refused as refused:
            failure = fault_of(refused)
            return speaker.error(failure)
        finally:
            self._tell(request, asked, failure)

    def _tell(self, request: Request, asked: ParsedAction | None, failure: Fault | None) -> None:
        name = asked.name if asked is not None else "Authenticate"
        values = asked.values if asked is not None else {}
        fault = (failure.name, failure.status) if failure is not None else None
        if asked is not None or (failure is not None and failure.status in DENIED_STATUSES):
            is_sns = asked is not None and SNS_ACTIONS.get(name) is asked.action
            kind = "sns" if is_sns else "sqs"
            audit_action(self._gateway, request, kind, name, values, fault)

    async def _admit(self, request: Request, body: bytes) -> str | None:
        """Finds out who asks, if they may come in at all; the region they signed for."""
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
    """Every access key there is."""

    secrets: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    """Whose each is."""
    must_sign: bool = False
    """Whether everybody has to."""


def keys_of(users: Mapping[str, UserRecord], static: Mapping[str, str]) -> Keys:
    secrets, owners = dict(static), {access_key: access_key for access_key in static}
    for name, user in users.items():
        for access_key, record in user.access_keys.items():
            secrets[access_key] = record.secret
            owners[access_key] = name
    return Keys(secrets, owners, must_sign=bool(static))


def read_credentials(text: str) -> dict[str, str]:
    """Secrets by access key, from KEY:SECRET,KEY:SECRET; the config's own check saw to the form."""
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
    """Trace for messages without one of their own; anything unlike a trace is passed over."""
    trace: str | None = request.headers.get(TRACE_HEADER)
    is_one = trace is not None and 0 < len(trace) <= TRACE_CHARS_MAX and trace.isascii()
    return trace if is_one and trace is not None and trace.isprintable() else None


def region_of(authorization: str) -> str | None:
    """The region that a request was signed for, where nobody asks who signed it."""
    parts = authorization.split("/", 3)
    return parts[2] if len(parts) == 4 else None
