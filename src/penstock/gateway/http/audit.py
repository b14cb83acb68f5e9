"""Audit rules for HTTP requests of all protocols.

As in `broker.api.audit_rules`, every request is either administrative or ordinary. Administrative
requests are always audited, ordinary ones only when they are denied. GET is ordinary. A request in
no table counts as administrative, and a test fails until it is classified.
"""

from typing import Final

from starlette.requests import Request

from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.problems import FORBIDDEN, UNAUTHORIZED
from penstock.gateway.http.request_io import principal_of
from penstock.security.audit_entries import DENIED, DONE, FAILED, AuditedCall
from penstock.state.registry import requests

ADMINISTRATIVE_ROUTES: Final = frozenset(
    {
        "POST /topics",
        "DELETE /topics/{name}",
        "POST /topics/{name}/partitions",
        "PATCH /topics/{name}/configs",
        "POST /topics/{name}/replay",
        "DELETE /groups/{group}",
        "PATCH /groups/{group}/configs",
        "POST /offsets/commit",
        "POST /dlq/{name}/redrive",
        "POST /dlq/{name}/purge",
        "DELETE /dlq/{name}/tasks/{task}",
        "POST /console/api/groups/{group}/reset",
        "POST /console/api/dlq/{name}/redrives",
        "POST /console/api/redrives/{id}/stop",
        "POST /console/api/redrives/{id}/undo",
        "POST /console/api/security/users",
        "DELETE /console/api/security/users",
        "POST /console/api/security/acls",
        "DELETE /console/api/security/acls",
        "POST /console/api/security/quotas",
    }
)
ORDINARY_ROUTES: Final = frozenset(
    {
        "POST /topics/{name}/messages",
        "POST /console/api/login",
        "POST /console/api/logout",
        *(f"POST {path}{verb}" for path in ("/", "/topics/{name}/") for verb in ("ack", "nack")),
        *(
            f"POST {path}{verb}"
            for path in ("/", "/topics/{name}/")
            for verb in ("reject", "extend")
        ),
    }
)
ADMINISTRATIVE_ACTIONS: Final = frozenset(
    {
        *("CreateQueue", "DeleteQueue", "PurgeQueue", "SetQueueAttributes"),
        *("StartMessageMoveTask", "CancelMessageMoveTask", "TagQueue", "UntagQueue"),
        *("CreateTopic", "DeleteTopic", "SetTopicAttributes", "SetSubscriptionAttributes"),
        *("Subscribe", "Unsubscribe", "TagResource", "UntagResource"),
    }
)
ORDINARY_ACTIONS: Final = frozenset(
    {
        *("ChangeMessageVisibility", "ChangeMessageVisibilityBatch"),
        *("DeleteMessage", "DeleteMessageBatch", "SendMessage", "SendMessageBatch"),
        *("ReceiveMessage", "Publish", "PublishBatch"),
    }
)
"""Ordinary besides the actions that begin with Get or List."""
ADMINISTRATIVE_CALLS: Final = frozenset(
    {
        requests.Register,
        requests.DeleteVersion,
        requests.DeleteSubject,
        requests.DeleteContext,
        requests.PutConfig,
        requests.DeleteConfig,
        requests.PutMode,
        requests.DeleteMode,
    }
)
FREQUENT: Final = frozenset({"POST /offsets/commit", "Register"})
"""Requests that programs repeat often."""
CONSOLE: Final = " /console/"
KINDS: Final = {"name": "topic", "group": "group", "letter": "letter"}
NAMES: Final = ("QueueUrl", "QueueName", "TopicArn", "SourceArn", "SubscriptionArn", "ResourceArn")
DENIED_STATUSES: Final = (UNAUTHORIZED, FORBIDDEN)


def is_administrative(name: str) -> bool:
    """True if a route, given as `METHOD /path`, is administrative."""
    return not name.startswith("GET ") and name not in ORDINARY_ROUTES


def is_administrative_action(name: str) -> bool:
    """True if an SQS or SNS action is administrative."""
    return name not in ORDINARY_ACTIONS and not name.startswith(("Get", "List"))


def set_audited_resources(request: Request, *resources: str) -> None:
    """Notes a request's resources for the audit log if its path does not name them."""
    request.state.audited = resources


def audit_route(gateway: Gateway, request: Request, name: str, status: int) -> None:
    """Audits a route's response."""
    is_denied = status in DENIED_STATUSES
    if not is_denied and not is_administrative(name):
        return
    said = tuple(
        f"{KINDS.get(key, key)}:{value}" for key, value in sorted(request.path_params.items())
    )
    resources = said + tuple(getattr(request.state, "audited", ()))
    outcome = DENIED if is_denied else DONE if status < 400 else FAILED
    codes = () if outcome == DONE else (str(status),)
    kind = "console" if CONSOLE in name else "http"
    _audit(gateway, request, kind, name, outcome, resources, codes)


def audit_action(
    gateway: Gateway,
    request: Request,
    kind: str,
    name: str,
    values: dict[str, object],
    fault: tuple[str, int] | None,
) -> None:
    """Audits a response of SQS or SNS (`kind`); `fault` is an error's name and status."""
    is_denied = fault is not None and fault[1] in DENIED_STATUSES
    if not is_denied and not is_administrative_action(name):
        return
    named = [str(values[key]) for key in NAMES if key in values] or [str(values.get("Name", ""))]
    resources = tuple(f"queue:{one.replace(':', '/').rpartition('/')[2]}" for one in named if one)
    outcome = DENIED if is_denied else DONE if fault is None else FAILED
    codes = () if fault is None else (fault[0],)
    _audit(gateway, request, kind, name, outcome, resources, codes)


def audit_call(
    gateway: Gateway, request: Request, call: requests.AnyCall, error: int | None
) -> None:
    """Audits a response of the schema registry; `error` is Confluent's error code."""
    is_denied = error is not None and int(str(error)[:3]) in DENIED_STATUSES
    if not is_denied and type(call) not in ADMINISTRATIVE_CALLS:
        return
    subject = getattr(call, "subject", None)
    resources = (f"subject:{subject}",) if subject is not None else ("cluster:schemas",)
    outcome = DENIED if is_denied else DONE if error is None else FAILED
    codes = () if error is None else (str(int(error)),)
    name = str(type(call).__struct_config__.tag)
    _audit(gateway, request, "registry", name, outcome, resources, codes)


def audit_failed_login(gateway: Gateway, peer: str) -> None:
    """Audits a failed login."""
    audited = AuditedCall(
        "http", "", peer, "Authenticate", DENIED, (), ("SASL_AUTHENTICATION_FAILED",)
    )
    gateway.ctx.security.audit.tell(audited)


def _audit(
    gateway: Gateway,
    request: Request,
    kind: str,
    name: str,
    outcome: str,
    resources: tuple[str, ...],
    codes: tuple[str, ...],
) -> None:
    who = principal_of(request)
    is_frequent = name in FREQUENT
    gateway.ctx.security.audit.tell(
        AuditedCall(
            kind, who.name, who.host, name, outcome, resources, codes, is_frequent=is_frequent
        )
    )
