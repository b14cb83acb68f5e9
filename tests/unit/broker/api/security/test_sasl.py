"""Logins on a listener without authentication: only for nodes of the cluster."""

import inspect
from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.dispatch import Dispatcher
from penstock.broker.api.security.sasl import OUT_OF_PLACE, sasl_authenticate, sasl_handshake
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.node.security.logins import NODE_MECHANISM, Logins, node_credentials
from penstock.security.acl_types import ANONYMOUS, NODE_USER
from penstock.security.login import Login, PlainExchange
from penstock.security.scram import ClientExchange
from penstock.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Client, Node, on_node
from tests.unit.broker.server.world import metadata_frame

SECRET = b"the cluster's own"


def outsider(node: Node) -> Client:
    ctx = node.ctx
    logins = Logins(BrokerConfigs({}), ctx.watcher, ctx.workers, ctx.clock, ctx.random, SECRET)
    client = Client()
    client.principal, client.login = ANONYMOUS, logins.node_login()
    return client


async def ask(
    node: Node, client: Client, handler: Callable[..., Any], version: int, request: Any
) -> Any:
    pending, answer = node.begin(handler, version, request, client.again())
    if inspect.isawaitable(answer):
        answer = await answer
    return answer if answer is not None else await pending.reply()


async def log_in(node: Node, client: Client, name: str, password: str) -> SaslAuthenticateResponse:
    exchange = ClientExchange(NODE_MECHANISM, name, password, "nonce")
    answer = await ask(
        node, client, sasl_handshake, 1, SaslHandshakeRequest(mechanism=NODE_MECHANISM)
    )
    assert answer.error_code == ErrorCode.NONE
    first = SaslAuthenticateRequest(auth_bytes=exchange.first())
    challenge = await ask(node, client, sasl_authenticate, 2, first)
    last = SaslAuthenticateRequest(auth_bytes=exchange.final(bytes(challenge.auth_bytes)))
    outcome = await ask(node, client, sasl_authenticate, 2, last)
    assert isinstance(outcome, SaslAuthenticateResponse)
    return outcome


@run_with(on_node)
async def test_node_authenticates_on_a_listener_without_authentication(node: Node) -> None:
    client = outsider(node)
    outcome = await log_in(node, client, NODE_USER, node_credentials(SECRET).password)
    assert outcome.error_code == ErrorCode.NONE
    assert client.principal == f"User:{NODE_USER}"


@run_with(on_node)
async def test_other_logins_on_an_open_listener_are_refused(
    node: Node,
) -> None:
    for name, password in ((NODE_USER, "guess"), ("ann", "hers")):
        client = outsider(node)
        outcome = await log_in(node, client, name, password)
        assert outcome.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert outcome.error_message == OUT_OF_PLACE
        assert client.principal == ANONYMOUS
        assert client.is_closed
    answer = await ask(
        node, outsider(node), sasl_handshake, 1, SaslHandshakeRequest(mechanism="PLAIN")
    )
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


@run_with(on_node)
async def test_login_is_optional_on_an_open_listener(node: Node) -> None:
    frame = metadata_frame(1)[4:]
    view = memoryview(frame)
    Dispatcher(node.ctx).call(outsider(node), view, 0, len(view))


@run_with(on_node)
async def test_login_that_cannot_be_checked_closes_the_connection(node: Node) -> None:
    """Clients take a failed login for the last word, and come again after a closed connection."""
    asked_from = []

    async def crowded(name: str, password: str, peer: str) -> bool:
        asked_from.append(peer)
        raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "try again")

    client = Client()
    client.principal, client.login = ANONYMOUS, Login({"PLAIN": lambda: PlainExchange(crowded)})
    client.login.choose("PLAIN")
    request = SaslAuthenticateRequest(auth_bytes=b"\0bob\0right")
    _, answer = node.begin(sasl_authenticate, 2, request, client)
    assert await answer is None
    assert client.is_closed
    assert not client.reply.done()
    assert asked_from == [client.peer]
    assert node.ctx.metrics.failed_logins.value == 0
