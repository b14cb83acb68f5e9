"""SaslHandshake (api 17), version 1; SaslAuthenticate (36), versions 0-2 (KIP-152, KIP-368).

Before authentication, only ApiVersions is answered (`dispatch`). A failed login is answered after a
delay and closes the connection. A login that cannot be checked at the moment closes the connection
without a reply: clients treat an error as final, but reconnect after a closed connection. v1
returns the lifetime of the session; a client that does not authenticate again by then is closed at
its next request. A listener without authentication accepts it only from nodes of the cluster; other
clients get an error with advice.
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

OUT_OF_PLACE = "this listener does not authenticate: connect with security.protocol=PLAINTEXT"


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
        log.info("%s requests the mechanism %r", call.caller.peer, request.mechanism[:64])
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
            log.debug("login from %s: %s", caller.peer, refused.message)
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
    """Returns the lifetime of this session; 0: as long as the connection."""
    identity = login.identity
    assert identity is not None
    if identity.principal == f"User:{NODE_USER}":
        return 0  # A closed connection means a stopped node (ADR 12); its secret does not expire.
    limits = [ctx.configs.integer("connections.max.reauth.ms")]
    if identity.expires_ms is not None:
        limits.append(max(1, identity.expires_ms - ctx.clock.now_ms()))
    lifetime_ms = min((limit for limit in limits if limit > 0), default=0)
    now = asyncio.get_running_loop().time()
    login.ends_at = now + lifetime_ms / 1000 if lifetime_ms else float("inf")
    return lifetime_ms


def _refused(code: ErrorCode, message: str | None) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"")
