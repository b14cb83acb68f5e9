"""Errors as `application/problem+json` (RFC 9457): HTTP status, Kafka's error name, what to do.

`STATUSES` maps error codes to HTTP statuses. A refusal without a message gets its code's hint, so
that every error says what may help.
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
"""Key of a request's scope for the authenticated principal (`authentication`)."""

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
    ErrorCode.UNACCEPTABLE_CREDENTIAL: 422,
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
    ErrorCode.UNKNOWN_LEADER_EPOCH: 503,
    ErrorCode.FENCED_STATE_EPOCH: 503,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: 503,
    ErrorCode.REQUEST_TIMED_OUT: 504,
}

HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist: create it first",
    ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "the message exceeds the topic's max.message.bytes: send a smaller one, or raise the limit"
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic of this name exists: choose another name",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "invalid topic name: use 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition's leader has changed: retry",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment: retry later",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group's coordinator is not available: retry later",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the group's coordinator is loading: retry later",
    ErrorCode.NOT_COORDINATOR: "the group's coordinator has changed: retry",
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "fewer replicas are in sync than min.insync.replicas requires: retry when they are back"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "the message was written, but too few in-sync replicas confirmed it: retry, with a "
        "dedup_id if it must not be delivered twice"
    ),
    ErrorCode.REQUEST_TIMED_OUT: (
        "the request timed out, and the message may have been written: retry, with a dedup_id if "
        "it must not be delivered twice"
    ),
    ErrorCode.INVALID_RECORD: "the topic is compacted: give every message a key",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
}


def status_of(code: ErrorCode) -> int:
    return STATUSES.get(code, 500)


def entry_of(refused: Refused) -> dict[str, Any]:
    """Formats a refusal as one entry of a list."""
    return {
        "status": status_of(refused.code),
        "code": refused.code.name,
        "detail": refused.message or HINTS.get(refused.code, refused.code.name),
    }


def problem(refused: Refused, **more: object) -> Response:
    """Formats a refusal as the whole response; `more`: additional members."""
    entry = entry_of(refused)
    response = _response(entry["status"], entry["code"], entry["detail"], more)
    if isinstance(refused, Throttled):
        response.headers["retry-after"] = retry_after(refused)
    return response


def retry_after(throttled: Throttled) -> str:
    """Value for a retry-after header: whole seconds."""
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
    """Formats errors of the framework: unknown path, wrong method, body too large."""
    assert isinstance(error, HTTPException)
    details = {
        404: f"path {request.url.path} does not exist: / lists all routes",
        405: f"method {request.method} is not allowed for {request.url.path}: see /docs",
        413: "the request body is too large: send fewer messages at a time",
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
        # An anonymous client may have the permission once it authenticates.
        entry = entry_of(error)
        return _response(UNAUTHORIZED, entry["code"], entry["detail"], {})
    return problem(error)


async def answer_client_gone(request: Request, error: Exception) -> Response:
    """The client disconnected before its request was complete; nginx's status for that."""
    return Response(status_code=CLIENT_GONE)


async def answer_internal_error(request: Request, error: Exception) -> Response:
    """Formats an unexpected exception; the node's log has its traceback."""
    detail = "internal error: the node's log has the details"
    return _response(500, ErrorCode.UNKNOWN_SERVER_ERROR.name, detail, {})
