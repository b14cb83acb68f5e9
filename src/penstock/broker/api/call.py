"""One request on its way: who asks what, in which version, and where the reply goes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.fair_turns import Steps
from penstock.base.ports import Buffer
from penstock.broker.api.metrics import RouteMetrics
from penstock.broker.api.route_row import Needs, Route
from penstock.security.login import Login

NEVER = float("inf")
DENIED_MAX = 50


class ClientConnection(Protocol):
    """The connection behind a call."""

    principal: str
    peer: str
    local_host: str
    """The address of this machine that it came to."""
    listener: str
    """The name of the listener that it came through."""
    login: Login | None
    """How it says who it is; None: it need not."""

    def settle(self, call: "Call") -> None: ...

    def close(self) -> None: ...

    def mute(self, seconds: float) -> None:
        """Nothing more is read from it for that long; what is being answered still is."""
        ...

    def when_closed(self, act: Callable[[], None]) -> None:
        """`act` is called once when the connection is lost."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """One API in one version, with everything looked up."""

    route: Route
    version: int
    read: Callable[[memoryview, int, int], tuple[Any, int]]
    write: Callable[[Any, list[Buffer]], None]
    metrics: RouteMetrics
    context: Any = None
    """The part of the node that the handler sees: one of the families in `context`."""
    has_tags: bool = False
    """Whether the header of its answer has tagged fields."""
    is_audited: bool = False
    """Whether the audit log may have something to tell of it although nobody is denied."""
    is_login: bool = False
    """Whether only the answer says that somebody was denied."""
    write_steps: Callable[[Any, list[Buffer]], Steps[None]] | None = None
    """Writes a large answer step by step; None: nothing is written, it stays in this process."""


class Call:
    """One request on its way: who asks what, in which version, and where the reply goes."""

    __slots__ = (
        "_abandoned",
        "_encode",
        "_now",
        "_overdue",
        "asked",
        "caller",
        "client_id",
        "correlation_id",
        "deadline",
        "denied",
        "frame",
        "is_done",
        "position",
        "prepared",
        "started",
        "version",
    )

    def __init__(
        self,
        caller: ClientConnection,
        prepared: Prepared,
        correlation_id: int,
        client_id: str | None,
        version: int,
        position: int,
        encode: Callable[["Call", Any], list[Buffer]],
        now: Callable[[], float],
    ) -> None:
        self.caller = caller
        self.prepared = prepared
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.version = version
        self.position = position
        self._encode = encode
        self._now = now
        self.started = now()
        self.frame: list[Buffer] | None = None
        self.is_done = False
        # Whoever answers holds the call, so these are let go of with the reply: no circles.
        self._abandoned: Callable[[], None] | None = None
        self._overdue: Callable[[], None] | None = None
        self.deadline = NEVER
        self.asked: Any = None
        """The request, where the audit log tells of it whatever becomes of it."""
        self.denied: list[str] | None = None
        """Resources that the caller has no right to, and asked for or would have been shown."""

    def note_denied(self, resource: str) -> None:
        if self.denied is None:
            self.denied = []
        if len(self.denied) < DENIED_MAX and resource not in self.denied:
            self.denied.append(resource)

    @property
    def route(self) -> Route:
        return self.prepared.route

    @property
    def principal(self) -> str:
        return self.caller.principal

    @property
    def needs(self) -> Needs:
        needs = self.prepared.route.needs
        assert needs is not None
        return needs

    def reply(self, response: Any) -> None:
        """Hands the answer over; it leaves once every earlier one has. At most once."""
        assert not self.is_done, "answered twice"
        self.frame = self._encode(self, response)
        self.is_done = True
        self._abandoned = self._overdue = None
        self.prepared.metrics.seconds.observe(self._now() - self.started)
        self.caller.settle(self)

    def finish_silently(self) -> None:
        """No reply at all, as acks=0 asks for."""
        self.is_done = True
        self.caller.settle(self)

    def hang_up(self) -> None:
        """No reply but the end of the connection: how a request with acks=0 hears of an error."""
        self.is_done = True
        self.caller.settle(self)
        self.caller.close()

    def when_overdue(self, seconds: float, answer: Callable[[], None]) -> None:
        """To be called if there is no reply that long after the request came, or soon after."""
        self.deadline = self.started + seconds
        self._overdue = answer

    def time_out(self) -> None:
        overdue, self._overdue = self._overdue, None
        if overdue is not None:
            overdue()

    def when_abandoned(self, clean_up: Callable[[], None]) -> None:
        """To be called if the connection is lost before the reply."""
        self._abandoned = clean_up

    def abandon(self) -> None:
        self.is_done = True
        abandoned, self._abandoned, self._overdue = self._abandoned, None, None
        if abandoned is not None:
            abandoned()
