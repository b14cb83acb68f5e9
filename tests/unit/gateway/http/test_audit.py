"""Classification of all HTTP requests for the audit log."""

from penstock.gateway.console.middleware import API
from penstock.gateway.console.mount import ROWS
from penstock.gateway.http.audit import (
    ADMINISTRATIVE_ACTIONS,
    ADMINISTRATIVE_CALLS,
    ADMINISTRATIVE_ROUTES,
    FREQUENT,
    ORDINARY_ACTIONS,
    ORDINARY_ROUTES,
    is_administrative,
    is_administrative_action,
)
from penstock.gateway.registry.endpoint import BY_ID, FILTERED, OPERATIONS
from penstock.gateway.rest.route_table import ENDPOINTS
from penstock.gateway.sns.actions import SNS_ACTIONS
from penstock.gateway.sqs.actions import SQS_ACTIONS
from penstock.security.acl_types import Operation

CHANGING = {Operation.WRITE, Operation.DELETE, Operation.ALTER_CONFIGS}


def test_every_route_except_get_is_classified() -> None:
    names = {f"{row.method} {row.path}" for row in ENDPOINTS if row.method != "GET"}
    names |= {f"{row.method} {API}{row.path}" for row in ROWS if row.method != "GET"}
    unclassified = names - ADMINISTRATIVE_ROUTES - ORDINARY_ROUTES
    assert not unclassified, f"add them to a table of penstock.gateway.http.audit: {unclassified}"
    assert not ADMINISTRATIVE_ROUTES & ORDINARY_ROUTES
    assert {name for name in names if is_administrative(name)} == ADMINISTRATIVE_ROUTES
    assert not is_administrative("GET /topics")


def test_every_action_of_sqs_and_sns_is_classified() -> None:
    names = {name for name in (*SQS_ACTIONS, *SNS_ACTIONS) if not name.startswith(("Get", "List"))}
    unclassified = names - ADMINISTRATIVE_ACTIONS - ORDINARY_ACTIONS
    assert not unclassified, f"add them to a table of penstock.gateway.http.audit: {unclassified}"
    assert {name for name in names if is_administrative_action(name)} == ADMINISTRATIVE_ACTIONS
    assert not is_administrative_action("ListQueues")


def test_every_registry_call_that_changes_state_is_administrative() -> None:
    assert {call for call, needs in OPERATIONS.items() if needs in CHANGING} == ADMINISTRATIVE_CALLS
    assert not ADMINISTRATIVE_CALLS & (set(BY_ID) | FILTERED)


def test_frequent_requests_are_administrative() -> None:
    calls = {call.__name__ for call in ADMINISTRATIVE_CALLS}
    assert ADMINISTRATIVE_ROUTES | calls >= FREQUENT
