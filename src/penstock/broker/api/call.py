"""One request with its caller and version, from its frame to its reply."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.fair_scheduler import Steps
from penstock.base.ports import Buffer
from penstock.broker.api.metrics import RouteMetrics
from penstock.broker.api.route_row import Needs, Route
from penstock.security.login import Login

NEVER = float("inf")
DENIED_MAX = 50


class ClientConnection(Protocol):
    """Connection of a call."""

    principal: str
    peer: str
    local_host: str
    """Local address of the connection."""
    listener: str
    """Name of the listener that accepted it."""
    login: Login | None
    """Authentication of the client; None: not required."""

    def settle(self, call: "Call") -> None: ...

    def close(self) -> None: ...

    def mute(self, seconds: float) -> None:
        """Handles no further request for that time; pending requests are still answered."""
        ...

    def when_closed(self, act: Callable[[], None]) -> None:
        """Registers `act` to be called once when the connection is lost."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Route of one API in one version, with codecs, metrics and context looked up."""

    route: Route
    version: int
    read: Callable[[memoryview, int, int], tuple[Any, int]]
    write: Callable[[Any, list[Buffer]], None]
    metrics: RouteMetrics
    context: Any = None
    """Context of the handler: one of the families in `context`."""
    has_tags: bool = False
    """True if the response header has tagged fields."""
    is_audited: bool = False
    """True if the audit log may record it even if it is not denied."""
    is_login: bool = False
    """True if only the response tells whether it was denied."""
    write_steps: Callable[[Any, list[Buffer]], Steps[None]] | None = None
    """Encodes a large response step by step; None: the response stays in this process."""


class Call:
    """One request with its caller and version, from its frame to its reply."""

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
        # Cleared with the reply: they refer to the call, which would be a reference cycle.
        self._abandoned: Callable[[], None] | None = None
        self._overdue: Callable[[], None] | None = None
        self.deadline = NEVER
        self.asked: Any = None
        """The request, if the audit log records it whatever its outcome."""
        self.denied: list[str] | None = None
        """Resources that the caller named or would have listed, but has no permission on."""

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
        """Finishes the call; the reply is sent after all earlier ones. Called at most once."""
        assert not self.is_done, "replied twice"
        self.frame = self._encode(self, response)
        self.is_done = True
        self._abandoned = self._overdue = None
        self.prepared.metrics.seconds.observe(self._now() - self.started)
        self.caller.settle(self)

    def finish_silently(self) -> None:
        """Finishes the call without reply, as for acks=0."""
        self.is_done = True
        self.caller.settle(self)

    def hang_up(self) -> None:
        """Closes the connection instead of a reply: the only error signal with acks=0."""
        self.is_done = True
        self.caller.settle(self)
        self.caller.close()

    def when_overdue(self, seconds: float, answer: Callable[[], None]) -> None:
        """Registers `answer`, called soon after this time if there is no reply."""
        self.deadline = self.started + seconds
        self._overdue = answer

    def time_out(self) -> None:
        overdue, self._overdue = self._overdue, None
        if overdue is not None:
            overdue()

    def when_abandoned(self, clean_up: Callable[[], None]) -> None:
        """Registers `clean_up`, called if the connection is lost before the reply."""
        self._abandoned = clean_up

    def abandon(self) -> None:
        self.is_done = True
        abandoned, self._abandoned, self._overdue = self._abandoned, None, None
        if abandoned is not None:
            abandoned()
