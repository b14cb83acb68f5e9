"""Arguments of the group commands: a group, and topics with partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.session import CommandSession, nearest

if TYPE_CHECKING:
    from penstock.client.admin.groups import GroupInfo

Chosen = dict[str, "list[int] | None"]
"""Topics with their chosen partitions, or None for all."""


def parse_topics(values: Iterable[str]) -> Chosen:
    """Parses `orders`, `orders:0,2` and `orders,payments:1`; numbers are partitions."""
    chosen: Chosen = {}
    for value in values:
        topic = ""
        has_partitions = False
        for part in value.split(","):
            if has_partitions and part.isdecimal():
                name, index = topic, part
            else:
                name, colon, index = part.partition(":")
                topic, has_partitions = name, bool(colon)
            if not name or (has_partitions and not index.isdecimal()):
                raise UserError(f"-t {value!r} is not a topic; write orders or orders:0,2")
            if not has_partitions:
                chosen[name] = None
            else:
                known = chosen.setdefault(name, [])
                if known is not None and int(index) not in known:
                    known.append(int(index))
    return chosen


def is_chosen(chosen: Chosen, topic: str, partition: int) -> bool:
    if topic not in chosen:
        return False
    indexes = chosen[topic]
    return indexes is None or partition in indexes


async def require_group(session: CommandSession, name: str) -> GroupInfo:
    """Returns the group; raises UserError with the most similar name if it does not exist."""
    from penstock.base.errors import ErrorCode, Refused
    from penstock.client.admin.groups import describe_group

    try:
        return await describe_group(session.cluster, name)
    except Refused as refused:
        if refused.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    raise await _no_such_group(session, name)


async def _no_such_group(session: CommandSession, name: str) -> UserError:
    from penstock.client.admin.groups import list_groups

    known = {listing.name: listing for listing in await list_groups(session.cluster)}
    if name in known:
        kind = known[name].kind
        if kind == "share":
            return UserError(f"{name!r} is a share group: {await _queue_hint(session, name)}")
        return UserError(f"{name!r} is a {kind} group; this command works with consumer groups")
    close = nearest(name, known)
    hint = f"did you mean {close!r}?" if close else "see `penstock group list`"
    return UserError(f"group {name!r} does not exist; {hint}")


async def _queue_hint(session: CommandSession, name: str) -> str:
    from penstock.client.admin.queues import list_queues

    topics = [queue.topic for queue in await list_queues(session.cluster) if queue.group == name]
    if not topics:
        return "it has read nothing yet; see `penstock queue list`"
    commands = [f"`penstock queue describe {topic} -g {name}`" for topic in topics[:3]]
    return f"see {' or '.join(commands)}" + (" ..." if len(topics) > 3 else "")


def refuse_members(info: GroupInfo, verb: str) -> None:
    """Raises UserError with advice if the group has members."""
    if info.members:
        count = len(info.members)
        members = "a member" if count == 1 else f"{count} members"
        pronoun = "it" if count == 1 else "them"
        raise UserError(
            f"group {info.name!r} has {members} ({info.state}); "
            f"stop {pronoun} first, then {verb} again"
        )
