"""One member of a classic group, as the coordinator knows it.

`join` and `sync` hold the member's waiting JoinGroup or SyncGroup. A `Wait` without a token has
lost its connection: the member still counts as joined or synced.

States of a classic group, by Kafka's names, and the names of its timers.
"""

from dataclasses import dataclass
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.base.state_machine import Token
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.records import ClassicMemberValue, Protocols
from penstock.wire.messages.classic_groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)

EMPTY: Final = "Empty"
PREPARING: Final = "PreparingRebalance"
COMPLETING: Final = "CompletingRebalance"
STABLE: Final = "Stable"
DEAD: Final = "Dead"

JOIN_TIMER: Final = ("join", "")
SYNC_TIMER: Final = ("sync", "")


def session_timer(member_id: str) -> tuple[str, str]:
    return ("session", member_id)


@dataclass(slots=True)
class Wait:
    """A waiting request, and the version of its response."""

    token: Token | None
    api_version: int


@dataclass(slots=True)
class ClassicMember:
    """A member; `value` is its persisted part."""

    member_id: str
    value: ClassicMemberValue
    is_new: bool = False
    """True while the member has not finished its first join and does not heartbeat yet."""
    join: Wait | None = None
    sync: Wait | None = None

    @property
    def protocol_names(self) -> list[str]:
        return [name for name, _ in self.value.protocols]

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.value.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """First of the member's protocols that is among the candidates."""
        return next(name for name in self.protocol_names if name in candidates)

    def answer_join(self, outcome: CallResult, response: JoinGroupResponse) -> None:
        if self.join is not None:
            outcome.reply(self.join.token, for_version(response, self.join.api_version))
            self.join = None

    def answer_sync(self, outcome: CallResult, response: SyncGroupResponse) -> None:
        if self.sync is not None:
            outcome.reply(self.sync.token, response)
            self.sync = None

    def forget(self, token: Token) -> None:
        for wait in (self.join, self.sync):
            if wait is not None and wait.token == token:
                wait.token = None


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """Rebalance timeout of the request; version 0 has only the session timeout."""
    is_given = request.rebalance_timeout_ms >= 0
    return request.rebalance_timeout_ms if is_given else request.session_timeout_ms


def protocols_of(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


def for_version(response: JoinGroupResponse, api_version: int) -> JoinGroupResponse:
    """Adapts a response: a missing protocol name is null from version 7 on, and empty before."""
    if api_version < 7 and response.protocol_name is None:
        response.protocol_name = ""
    return response


def joined(
    member_id: str,
    generation: int,
    protocol_type: str | None,
    protocol: str | None,
    leader: str | None,
    members: list[JoinGroupResponseMember],
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=int(ErrorCode.NONE),
        generation_id=generation,
        protocol_type=protocol_type,
        protocol_name=protocol,
        leader=leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def join_error(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=int(code),
        generation_id=-1,
        protocol_type=None,
        protocol_name=None,
        leader="",
        member_id=member_id,
        members=(),
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=int(code), assignment=b"")
