"""Endpoint for AWS SDKs: protocols, signatures, queue URLs, malformed requests."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive, Send
from starlette.types import Scope as HttpScope

from penstock.broker.api.route_row import Needs, Operation, ResourceType
from penstock.broker.api.security.users import create_access_key, delete_access_key
from penstock.cluster.configs.config_types import parse
from penstock.cluster.configs.effective_configs import InvalidConfig, Scope, find
from penstock.gateway.sqs.endpoint import AwsFront, read_credentials
from penstock.gateway.sqs.sigv4 import SignedRequest, claim_of, sign
from penstock.wire.messages.internal.admin import (
    CreateAccessKeyRequest,
    DeleteAccessKeyRequest,
)
from tests.run_with import run_with
from tests.unit.gateway.http.granted_permissions import HOST, AllowAll, GrantedPermissions
from tests.unit.gateway.sqs.sdk import Sdk, failure, with_sdk

VERSION = "2012-11-05"
BLANK_SIGNATURE = "0" * 64
HANDED_ON = 0
"""Stands for a status if the application got the request."""


@run_with(with_sdk)
async def test_query_protocol_supports_all_steps_in_xml(sdk: Sdk) -> None:
    made = await sdk.form(
        "CreateQueue", VERSION, QueueName="jobs", Attribute__1__Name="DelaySeconds",
        Attribute__1__Value="0", Tag__1__Key="a", Tag__1__Value="b",
    )  # fmt: skip
    url = made.findtext("CreateQueueResult/QueueUrl") or ""
    assert url.endswith("/000000000000/jobs")
    sent = await sdk.form(
        "SendMessage", VERSION, QueueUrl=url, MessageBody="<a&b>",
        MessageAttribute__1__Name="n", MessageAttribute__1__Value__DataType="Number",
        MessageAttribute__1__Value__StringValue="1",
    )  # fmt: skip
    got = await sdk.form(
        "ReceiveMessage", VERSION, QueueUrl=url, AttributeName__1="All",
        MessageAttributeName__1="All", MaxNumberOfMessages="10",
    )  # fmt: skip
    message = got.find("ReceiveMessageResult/Message")
    assert message is not None
    assert message.findtext("Body") == "<a&b>"
    assert message.findtext("MessageAttribute/Value/StringValue") == "1"
    assert message.findtext("MD5OfMessageAttributes") == sent.findtext(
        "SendMessageResult/MD5OfMessageAttributes"
    )
    receipt = message.findtext("ReceiptHandle") or ""
    await sdk.form("DeleteMessage", VERSION, QueueUrl=url, ReceiptHandle=receipt)
    tags = await sdk.form("ListQueueTags", VERSION, QueueUrl=url)
    assert tags.findtext("ListQueueTagsResult/Tag/Key") == "a"
    batch = await sdk.form(
        "SendMessageBatch", VERSION, QueueUrl=url, SendMessageBatchRequestEntry__1__Id="1",
        SendMessageBatchRequestEntry__1__MessageBody="m",
    )  # fmt: skip
    assert batch.findtext("SendMessageBatchResult/SendMessageBatchResultEntry/Id") == "1"
    listed = await sdk.form("ListQueues", VERSION)
    assert listed.findtext("ListQueuesResult/QueueUrl") == url


@run_with(with_sdk)
async def test_query_protocol_errors_have_the_older_codes(sdk: Sdk) -> None:
    unknown = await failure(sdk.form("GetQueueUrl", VERSION, QueueName="missing"))
    assert (unknown.code, unknown.status) == ("AWS.SimpleQueueService.NonExistentQueue", 400)
    assert (await failure(sdk.form("Dance", VERSION))).code == "InvalidAction"
    assert (await failure(sdk.form("GetQueueUrl", VERSION))).code == "MissingParameter"


@run_with(with_sdk)
async def test_request_to_a_queue_url_may_omit_the_queue(sdk: Sdk) -> None:
    url = await sdk.create()
    form = b"Action=SendMessage&MessageBody=a&Version=2012-11-05"
    status, _, _ = await sdk.post(form, {}, "/000000000000/jobs", "jobs")
    assert status == 200
    assert await sdk.bodies(url) == ["a"]


@pytest.mark.parametrize(
    ("body", "target", "name"),
    [
        (b"{", "AmazonSQS.ListQueues", "SerializationException"),
        (b"[]", "AmazonSQS.ListQueues", "SerializationException"),
        (b"\xff", "AmazonSQS.ListQueues", "SerializationException"),
        (b"[" * 100_000, "AmazonSQS.ListQueues", "SerializationException"),
        (b"{}", "AmazonSQS.Dance", "InvalidAction"),
        (b"{}", "DynamoDB.ListTables", "InvalidAction"),
    ],
    ids=range(6),
)
@run_with(with_sdk)
async def test_requests_without_action_are_refused(
    sdk: Sdk, *, body: bytes, target: str, name: str
) -> None:
    status, _, answer = await sdk.post(body, {"x-amz-target": target})
    assert status == 400
    assert json.loads(answer)["__type"] == f"com.amazonaws.sqs#{name}"


@run_with(with_sdk)
async def test_disconnected_caller_leases_nothing(sdk: Sdk) -> None:
    url = await sdk.create()
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}).encode()
    hung_up = asyncio.Event()
    parts: list[dict[str, Any]] = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        if parts:
            return parts.pop()
        await hung_up.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "app": sdk.app,
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "headers": [(b"x-amz-target", b"AmazonSQS.ReceiveMessage")],
    }
    polling = asyncio.ensure_future(sdk.entry.answer(Request(scope, receive)))
    await asyncio.sleep(1)
    hung_up.set()
    with pytest.raises(HTTPException):
        await polling
    await sdk.send(url, "a")
    (message,) = await sdk.receive(url)
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


# -- signatures -------------------------------------------------------------------------------


def signed(body: bytes, now: str, secret: str, key: str = "KEY") -> dict[str, str]:
    """Returns the headers of a signed request."""
    headers = {
        "host": "broker:8080",
        "x-amz-date": now,
        "x-amz-target": "AmazonSQS.ListQueues",
    }
    text = (
        f"AWS4-HMAC-SHA256 Credential={key}/{now[:8]}/eu-west-1/sqs/aws4_request, "
        f"SignedHeaders={';'.join(headers)}, Signature="
    )
    blank = [*headers.items(), ("authorization", text + BLANK_SIGNATURE)]
    request = SignedRequest("POST", b"/", b"", blank, body)
    claim = claim_of(request)
    assert claim is not None
    return headers | {"authorization": text + sign(request, claim, secret)}


@run_with(with_sdk, sqs_credentials="KEY:s/e+c=ret, OTHER:x")
async def test_configured_credentials_require_a_valid_signature(sdk: Sdk) -> None:
    await sdk.node.create("jobs", 1)
    now = utc(sdk.node.ctx.clock.now_ms())
    status, _, body = await sdk.post(b"{}", signed(b"{}", now, "s/e+c=ret"))
    assert (status, len(json.loads(body)["QueueUrls"])) == (200, 1)
    for headers, name in (
        (signed(b"{}", now, "other"), "SignatureDoesNotMatch"),
        (signed(b"{ }", now, "s/e+c=ret"), "SignatureDoesNotMatch"),
        ({"x-amz-target": "AmazonSQS.ListQueues"}, "MissingAuthenticationToken"),
        (signed(b"{}", "19990101T000000Z", "s/e+c=ret"), "SignatureDoesNotMatch"),
    ):
        status, _, body = await sdk.post(b"{}", headers)
        assert (status, json.loads(body)["__type"]) == (403, f"com.amazonaws.sqs#{name}")


def utc(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")


async def make_key(sdk: Sdk, user: str) -> tuple[str, str]:
    answer = await sdk.node.ask(create_access_key, 0, CreateAccessKeyRequest(user=user))
    assert answer.error_code == 0
    return answer.access_key, answer.secret


@run_with(with_sdk)
async def test_signature_with_a_users_key_authenticates_the_user(sdk: Sdk) -> None:
    await sdk.node.create("jobs", 1)
    key, secret = await make_key(sdk, "eve")
    lists = sdk.node.ctx.authorizer = GrantedPermissions()
    now, sdk.host = utc(sdk.node.ctx.clock.now_ms()), HOST
    lists.give([Needs(ResourceType.TOPIC, Operation.DESCRIBE)], topic="jobs")
    status, _, body = await sdk.post(b"{}", signed(b"{}", now, secret, key))
    assert (status, len(json.loads(body)["QueueUrls"])) == (200, 1)
    for headers, name in (
        (signed(b"{}", now, "other", key), "SignatureDoesNotMatch"),
        (signed(b"{}", now, secret, "PNSKNOBODY"), "InvalidClientTokenId"),
        (signed(b"{}", "19990101T000000Z", secret, key), "SignatureDoesNotMatch"),
    ):
        status, _, body = await sdk.post(b"{}", headers)
        assert (status, json.loads(body)["__type"]) == (403, f"com.amazonaws.sqs#{name}")
    assert sdk.node.ctx.metrics.failed_logins.value == 3
    sdk.node.ctx.authorizer = sdk.node.rights
    await sdk.node.ask(delete_access_key, 0, DeleteAccessKeyRequest(access_key=key))
    sdk.node.ctx.authorizer = lists
    status, _, body = await sdk.post(b"{}", signed(b"{}", now, secret, key))
    assert json.loads(body)["__type"] == "com.amazonaws.sqs#InvalidClientTokenId"


@run_with(with_sdk)
async def test_unsigned_request_is_anonymous_and_subject_to_permissions(sdk: Sdk) -> None:
    await sdk.node.create("jobs", 1)
    await make_key(sdk, "eve")
    url = "http://broker:8080/000000000000/jobs"
    assert (await sdk("GetQueueUrl", QueueName="jobs"))["QueueUrl"] == url
    sdk.node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "jobs")
    assert (await failure(sdk("GetQueueUrl", QueueName="jobs"))).name == "AccessDenied"


@run_with(with_sdk)
async def test_any_signature_is_accepted_without_keys_and_authorization(sdk: Sdk) -> None:
    sdk.node.ctx.authorizer = AllowAll()
    sdk.headers["authorization"] = "nonsense"
    assert await sdk("ListQueues") == {}


@pytest.mark.parametrize("text", ["", "A", "A:", ":b", "A:b,", "A:b,,C:d"])
def test_malformed_credentials_are_an_invalid_config(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"\[hidden\].*KEY:SECRET"):
        parse(find(Scope.BROKER, "sqs.credentials"), text)


def test_credentials_are_parsed_as_pairs() -> None:
    assert read_credentials("") == {}
    assert read_credentials(" A:b , C:d:e") == {"A": "b", "C": "d:e"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 200),
        ("POST", "/000000000000/jobs", 200),
        ("GET", "/", HANDED_ON),
        ("POST", "/000000000000/", HANDED_ON),
        ("POST", "/000000000000/jobs/more", HANDED_ON),
        ("POST", "/topics/jobs/messages", HANDED_ON),
    ],
)
@run_with(with_sdk)
async def test_front_answers_only_sdk_requests(
    sdk: Sdk, *, method: str, path: str, status: int
) -> None:
    await sdk.create("jobs")
    assert await through_front(sdk, method, path) == status


@run_with(with_sdk)
async def test_front_refuses_too_large_bodies(sdk: Sdk) -> None:
    assert await through_front(sdk, "POST", "/", HTTPException(413)) == 413


async def through_front(
    sdk: Sdk, method: str, path: str, failure: HTTPException | None = None
) -> int:
    """Returns the status of a response to GetQueueUrl; reading the body raises `failure`."""
    statuses: list[int] = []

    async def application(scope: HttpScope, receive: Receive, send: Send) -> None:
        statuses.append(HANDED_ON)

    async def receive() -> Message:
        if failure is not None:
            raise failure
        return {"type": "http.request", "body": b'{"QueueName": "jobs"}', "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"broker:8080"), (b"x-amz-target", b"AmazonSQS.GetQueueUrl")],
    }
    front = AwsFront(application, sdk.moves.gateway, sdk.moves)  # type: ignore[arg-type]
    await front(scope, receive, send)
    (status,) = statuses
    return status
