"""SaslHandshake (api 17), version 1; SaslAuthenticate (36), versions 0-2 (KIP-152, KIP-368).

Before a login is done nothing else but ApiVersions is answered (`dispatch`). One that failed is
answered after a pause and ends the connection. One that cannot be looked at for now only ends it:
clients take an answer for the last word, and come again after a closed connection. v1 says how
long the session lasts; who does not log in again by then is closed at the next request. A listener
that asks nobody lets nodes of the cluster say that they are, and tells clients that they are at
the wrong place.
"""

import asyncio
import logging

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import SecurityContext
from penstock.security.acl_types import NODE_USER
from penstock.security.login import FAILED, Login, LoginFailed
from penstock.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

log = logging.getLogger("penstock.security")

OUT_OF_PLACE = "this listener does not authenticate; connect with security.protocol=PLAINTEXT"


def sasl_handshake(
    ctx: SecurityContext, call: Call, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    login = call.caller.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())
    code = ErrorCode.NONE
    try:
        login.choose(request.mechanism)
    except Refused as refused:
        log.info("%s asks for the mechanism %r", call.caller.peer, request.mechanism[:64])
        if login.is_optional:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())
        code = refused.code
    return SaslHandshakeResponse(error_code=code, mechanisms=login.mechanisms)


async def sasl_authenticate(
    ctx: SecurityContext, call: Call, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | None:
    caller = call.caller
    login = caller.login
    if login is None:
        return _refused(ErrorCode.ILLEGAL_SASL_STATE, OUT_OF_PLACE)
    try:
        step = await login.step(bytes(request.auth_bytes), caller.peer)
    except Refused as refused:
        if refused.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            log.debug("a login from %s: %s", caller.peer, refused.message)
            caller.close()
            return None
        return _refused(refused.code, refused.message)
    except LoginFailed as failed:
        ctx.failed_logins.note(caller.peer, failed)
        await asyncio.sleep(ctx.configs.integer("connection.failed.authentication.delay.ms") / 1000)
        words = OUT_OF_PLACE if login.is_optional else FAILED
        call.reply(_refused(ErrorCode.SASL_AUTHENTICATION_FAILED, words))
        caller.close()
        return None
    lifetime_ms = 0
    if step.identity is not None:
        caller.principal = step.identity.principal
        lifetime_ms = _lifetime_ms(ctx, login)
    return SaslAuthenticateResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        auth_bytes=step.reply,
        session_lifetime_ms=lifetime_ms,
    )


def _lifetime_ms(ctx: SecurityContext, login: Login) -> int:
    """How long this login lasts; 0: for as long as the connection."""
    identity = login.identity
    assert identity is not None
    if identity.principal == f"User:{NODE_USER}":
        return 0  # A closed connection is taken for a node's end (ADR 12); its secret never ends.
    limits = [ctx.configs.integer("connections.max.reauth.ms")]
    if identity.expires_ms is not None:
        limits.append(max(1, identity.expires_ms - ctx.clock.now_ms()))
    lifetime_ms = min((limit for limit in limits if limit > 0), default=0)
    now = asyncio.get_running_loop().time()
    login.ends_at = now + lifetime_ms / 1000 if lifetime_ms else float("inf")
    return lifetime_ms


def _refused(code: ErrorCode, message: str | None) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"")
