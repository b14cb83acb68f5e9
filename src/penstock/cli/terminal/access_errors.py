"""Explains refused access: what the broker or the operation requires, and how to get it.

Kafka's protocol only closes a connection that lacks a login or TLS, and names no operation when an
ACL denies one. So the broker is asked what its listener requires, and the operation follows from
the command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.base.errors import Refused
    from penstock.client.connection import Address

PROBE_MS = 3_000
TOPIC_OPERATIONS = {
    "produce": "write",
    "consume": "read",
    "replay": "read",
    "bench": "write",
    "group seek": "read",
    "topic create": "create describe",
    "topic delete": "delete",
    "topic truncate": "delete",
    "topic describe": "describe describe-configs",
    "topic alter": "alter alter-configs describe-configs",
    "dlq redrive": "read",
    "dlq purge": "delete",
}
"""Operations on a topic by command; `describe` for the others."""
GROUP_OPERATIONS = {"consume": "read", "replay": "read", "group seek": "read"}
GROUP_OPERATIONS |= {"group delete": "delete", "group alter": "alter-configs"}
CLUSTER_OPERATIONS = {
    "config list": "describe-configs",
    "config describe": "describe-configs",
    "config set": "alter-configs",
    "config unset": "alter-configs",
    "quota list": "describe-configs",
    "quota set": "alter-configs",
    "quota remove": "alter-configs",
    "acl allow": "alter",
    "acl deny": "alter",
    "acl remove": "alter",
    "user set": "alter",
    "user delete": "alter",
    "topic create": "create",
}
_DENIALS = {
    "TOPIC_AUTHORIZATION_FAILED": ("topic", TOPIC_OPERATIONS),
    "GROUP_AUTHORIZATION_FAILED": ("group", GROUP_OPERATIONS),
    "CLUSTER_AUTHORIZATION_FAILED": ("cluster", CLUSTER_OPERATIONS),
}


def explain_denial(refused: Refused, command: str, user: str) -> str | None:
    """Names the permission that the command lacks; None if it was refused for another reason.

    `command`: its path without `penstock`.
    """
    denial = _DENIALS.get(refused.code.name)
    if denial is None:
        return None
    kind, operations = denial
    needed = operations.get(command, "describe")
    text = " ".join(str(refused).split())
    if kind == "cluster":
        resource, option = "the cluster", "--cluster"
    else:
        named = re.search(rf"{kind} '([^']+)'", text)
        name = named[1] if named else f"{kind.upper()}"
        resource, option = f"{kind} {name!r}", f"--{kind} {name}"
    permission = needed.upper().replace(" ", " and ")
    return (
        f"not allowed: `penstock {command}` needs the permission {permission} on {resource}, which "
        f"{user} lacks; an administrator grants it with "
        f"`penstock acl allow {user} {needed} {option}`"
    )


async def find_requirement(addresses: Sequence[Address]) -> str | None:
    """Asks a broker what its listener requires of a client without a login; None if unknown."""
    from penstock.client.connection import ConnectionConfig, connect
    from penstock.wire.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse

    address = addresses[0]
    config = ConnectionConfig(client_id="penstock-cli", connect_timeout_ms=PROBE_MS)
    try:
        connection = await connect(address, config)
    except OSError:
        return await _find_tls(address)
    try:
        answer = await connection.call(SaslHandshakeRequest(mechanism="?"), SaslHandshakeResponse)
    except OSError:
        return None
    finally:
        connection.close()
        await connection.wait_closed()
    if not answer.mechanisms:
        return None
    return (
        f"{address} requires a login (SASL: {', '.join(answer.mechanisms)}); add one with "
        f"`penstock profile add NAME -b {address} --username USER`, which asks for the password, "
        "or pass --command-config FILE before the command. An administrator creates users with "
        "`penstock user set USER`"
    )


async def _find_tls(address: Address) -> str | None:
    import asyncio
    import contextlib
    import ssl

    # Nothing is sent over it: only whether the broker speaks TLS matters.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(PROBE_MS / 1000):
            _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    except (OSError, TimeoutError):
        return None
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return (
        f"{address} requires TLS; connect with `penstock profile add NAME -b {address} --tls --ca "
        "CA.pem` (and --username USER for a login), or pass --command-config FILE before the "
        "command"
    )
