"""Errors as `application/problem+json` (RFC 9457): a status, Kafka's name for it, what to do.

One table says which status a refusal has. A refusal without words of its own gets those of its
code: every answer says what may help.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.quota import Throttled

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = "1"
UNAUTHORIZED, FORBIDDEN, CLIENT_GONE, NOT_AVAILABLE = 401, 403, 499, 503
PRINCIPAL = "penstock.principal"
"""Where a request's scope says who asks, if they have said so (`authentication`)."""

STATUSES: Mapping[ErrorCode, int] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.SASL_AUTHENTICATION_FAILED: 401,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TOPIC_DELETION_DISABLED: 403,
    ErrorCode.INVALID_RECORD_STATE: 409,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.SECURITY_DISABLED: 409,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: 409,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: 409,
    ErrorCode.UNKNOWN_MEMBER_ID: 409,
    ErrorCode.ILLEGAL_GENERATION: 409,
    ErrorCode.STALE_MEMBER_EPOCH: 409,
    ErrorCode.REBALANCE_IN_PROGRESS: 409,
    ErrorCode.DUPLICATE_RESOURCE: 409,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.RECORD_LIST_TOO_LARGE: 413,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: 413,
    ErrorCode.INVALID_REQUEST: 422,
    ErrorCode.INVALID_RECORD: 422,
    ErrorCode.INVALID_TIMESTAMP: 422,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 422,
    ErrorCode.INVALID_PARTITIONS: 422,
    ErrorCode.INVALID_REPLICATION_FACTOR: 422,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: 422,
    ErrorCode.INVALID_CONFIG: 422,
    ErrorCode.INVALID_GROUP_ID: 422,
    ErrorCode.OFFSET_OUT_OF_RANGE: 422,
    ErrorCode.POLICY_VIOLATION: 422,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
    ErrorCode.LEADER_NOT_AVAILABLE: 503,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: 503,
    ErrorCode.REPLICA_NOT_AVAILABLE: 503,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
    ErrorCode.NOT_COORDINATOR: 503,
    ErrorCode.NOT_ENOUGH_REPLICAS: 503,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: 503,
    ErrorCode.NETWORK_EXCEPTION: 503,
    ErrorCode.KAFKA_STORAGE_ERROR: 503,
    ErrorCode.OFFSET_NOT_AVAILABLE: 503,
    ErrorCode.FENCED_LEADER_EPOCH: 503,
    ErrorCode.REQUEST_TIMED_OUT: 504,
}

HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition: create it first",
    ErrorCode.UNKNOWN_TOPIC_ID: "the topic is gone",
    ErrorCode.MESSAGE_TOO_LARGE: "the message is larger than the topic's max.message.bytes",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic of this name exists",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a topic's name has 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition has just moved: try again",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment: try again",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group's coordinator is not ready: try again",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the group's coordinator is starting: try again",
    ErrorCode.NOT_COORDINATOR: "the group's coordinator has just moved: try again",
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "fewer replicas are in sync than min.insync.replicas asks for: try again when they are back"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "it is not known whether enough replicas have it: try again, with a dedup_id if it must "
        "not be delivered twice"
    ),
    ErrorCode.REQUEST_TIMED_OUT: (
        "it is not known whether it was written: try again, with a dedup_id if it must not be "
        "delivered twice"
    ),
    ErrorCode.INVALID_RECORD: "a compacted topic takes only messages with a key",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
}


def status_of(code: ErrorCode) -> int:
    return STATUSES.get(code, 500)


def entry_of(refused: Refused) -> dict[str, Any]:
    """A refusal as one entry among others."""
    return {
        "status": status_of(refused.code),
        "code": refused.code.name,
        "detail": refused.message or HINTS.get(refused.code, refused.code.name),
    }


def problem(refused: Refused, **more: object) -> Response:
    """A refusal as the whole answer; `more` are members of its own."""
    entry = entry_of(refused)
    response = _response(entry["status"], entry["code"], entry["detail"], more)
    if isinstance(refused, Throttled):
        response.headers["retry-after"] = retry_after(refused)
    return response


def retry_after(throttled: Throttled) -> str:
    """In whole seconds, as HTTP has it."""
    return str(math.ceil(throttled.wait_s))


def _response(status: int, code: str, detail: str, more: Mapping[str, object]) -> Response:
    body = {
        "type": "urn:penstock:" + code.lower().replace("_", "-"),
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        **more,
    }
    headers = {"retry-after": RETRY_SECONDS} if status in (429, 503) else None
    if status == UNAUTHORIZED:
        headers = {"www-authenticate": 'Basic realm="penstock", charset="UTF-8"'}
    return Response(msgspec.json.encode(body), status, headers, MEDIA_TYPE)


async def answer_http_error(request: Request, error: Exception) -> Response:
    """What the framework refuses: an unknown path, another method, a body that is too large."""
    assert isinstance(error, HTTPException)
    details = {
        404: f"there is no page {request.url.path}: / lists what there is",
        405: f"{request.url.path} does not take {request.method}: see /docs",
        413: "the body is larger than this server takes: send fewer messages at a time",
    }
    codes = {
        400: "BAD_REQUEST",
        404: "NOT_FOUND",
        405: "METHOD_NOT_ALLOWED",
        413: "MESSAGE_TOO_LARGE",
    }
    status = error.status_code
    response = _response(
        status, codes.get(status, "REFUSED"), details.get(status, error.detail), {}
    )
    response.headers.update(error.headers or {})
    return response


async def answer_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    if status_of(error.code) == FORBIDDEN and PRINCIPAL not in request.scope:
        # Who has not said who they are may have the right once they do.
        entry = entry_of(error)
        return _response(UNAUTHORIZED, entry["code"], entry["detail"], {})
    return problem(error)


async def answer_nobody(request: Request, error: Exception) -> Response:
    """Whoever asked hung up before all of it had come in; nginx's number for that."""
    return Response(status_code=CLIENT_GONE)


async def answer_bug(request: Request, error: Exception) -> Response:
    """What we did not expect: the log has it, with where it came from."""
    detail = "an unexpected error of ours; the node's log says more"
    return _response(500, ErrorCode.UNKNOWN_SERVER_ERROR.name, detail, {})
