"""Where requests of AWS SDKs come in: who asks, what for, and the answer.

SQS and SNS share the port with everything else: requests are POST to `/`, or to a queue's own
URL. Who asks is checked first: with `sqs.credentials` set, every request must be signed by one of
them (`sigv4`), and whoever signed is the principal `User:<access key>`; without, nobody is asked.
"""

import uuid

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.base.errors import Refused
from penstock.doors.door import Door
from penstock.http.exchange import while_connected
from penstock.http.sqs.call import Answer, Call
from penstock.http.sqs.faults import Fault, fault_of
from penstock.http.sqs.moves import Moves
from penstock.http.sqs.names import ACCOUNT, REGION
from penstock.http.sqs.protocols import Asked, JsonProtocol, QueryProtocol, Speaker
from penstock.http.sqs.requests import read_request
from penstock.http.sqs.sigv4 import Claim, SignedRequest, claim_of, verify
from penstock.security.rights import ANONYMOUS

TARGET = "x-amz-target"
CREDENTIALS = "sqs.credentials"


def aws_routes(door: Door, moves: Moves) -> list[Route]:
    """The routes of the SQS and SNS doors."""
    entry = Entry(door, moves)
    return [
        Route("/", entry.answer, methods=["POST"]),
        Route(f"/{ACCOUNT}/{{queue}}", entry.answer, methods=["POST"]),
    ]


class Entry:
    """The endpoint of both doors."""

    def __init__(self, door: Door, moves: Moves) -> None:
        self._door = door
        self._moves = moves
        self._secrets: tuple[str | None, dict[str, str]] = (None, {})

    async def answer(self, request: Request) -> Response:
        request_id = str(uuid.UUID(bytes=self._door.ctx.random.random_bytes(16), version=4))
        target = request.headers.get(TARGET)
        speaker: Speaker = (
            QueryProtocol(request_id) if target is None else JsonProtocol(target, request_id)
        )
        body = await request.body()
        try:
            call = self._admit(_signed(request, body))
            asked = speaker.read(body)
            if "queue" in request.path_params:
                # Older SDKs send to the queue's own URL, and may leave it out of the request.
                asked.values.setdefault("QueueUrl", request.path_params["queue"])
            return speaker.result(asked, await _act(request, call, asked))
        except Fault as fault:
            return speaker.error(fault)
        except Refused as refused:
            return speaker.error(fault_of(refused))

    def _admit(self, request: SignedRequest) -> Call:
        """Whoever asks, if they may come in at all."""
        node = self._door.ctx
        secrets = self._credentials()
        claim = _claim(request, is_checked=bool(secrets))
        principal = ANONYMOUS
        if secrets:
            access_key = verify(request, claim, secrets, node.clock.now_ms())
            principal = f"User:{access_key}"
        base_url = f"http://{request.header('host') or 'localhost'}"
        region = claim.region if claim else REGION
        return Call(self._door, principal, base_url, region, self._moves)

    def _credentials(self) -> dict[str, str]:
        """Secrets by access key; read again only when the config has changed."""
        text = self._door.ctx.configs.text(CREDENTIALS)
        if text != self._secrets[0]:
            self._secrets = (text, read_credentials(text or ""))
        return self._secrets[1]


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


def _claim(request: SignedRequest, *, is_checked: bool) -> Claim | None:
    """Who says to have signed; a signature that cannot be read matters only where it is checked."""
    try:
        return claim_of(request)
    except Fault:
        if is_checked:
            raise
        return None


async def _act(request: Request, call: Call, asked: Asked) -> Answer:
    action = asked.action
    work = action.handler(call, read_request(action.request, asked.values))
    return await (while_connected(request, work) if action.waits else work)
