"""What a handler sees: the node through a narrow window, and the call it answers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.fair_turns import FairTurns, Steps
from penstock.base.ids import NodeId
from penstock.base.ports import Buffer, Disk, Random, Store, WallClock, Workers
from penstock.broker.api.data.fetch_sessions import FetchSessions
from penstock.broker.api.data.read_ahead import ReadAhead
from penstock.broker.api.data.replica_fetch_sessions import ReplicaSessions
from penstock.broker.api.large_replies import Listings
from penstock.broker.api.metrics import Metrics, RouteMetrics
from penstock.broker.api.queues.share_sessions import ShareSessions
from penstock.broker.api.route_row import Needs, Operation, ResourceType, Route
from penstock.broker.api.security.failed_logins import FailedLogins
from penstock.cluster.configs.configs import BrokerConfigs
from penstock.cluster.controller.recent_failures import RecentFailures
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.membership import ClusterMembership
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.producer_ids import ProducerIds
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.replication.throttle import Throttle
from penstock.cluster.storage.log_encryption import LogEncryption
from penstock.coordinator.audit_log import AuditLog
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.groups_by_topic import Positions
from penstock.coordinator.queues.admin import QueueAdmin
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.coordinator.queues.router import QueueRouter
from penstock.coordinator.registry import RegistryCoordinator
from penstock.coordinator.transactions import TxnCoordinator
from penstock.security.acl_types import WILDCARD
from penstock.security.login import Login

if TYPE_CHECKING:
    from penstock.broker.api.quota import Meter

NEVER = float("inf")
LOOKS_MAX = 1
"""Batches that are unpacked at the same time: the others need a core as well."""
DENIED_MAX = 50


class AuthorizerPort(Protocol):
    """Says who may do what. One implementation for every door."""

    def allows(
        self,
        principal: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        host: str = WILDCARD,
    ) -> bool: ...

    def allows_some(
        self, principal: str, operation: Operation, resource: ResourceType, host: str = WILDCARD
    ) -> bool:
        """Whether there is any name for which it would be allowed."""
        ...

    @property
    def is_on(self) -> bool:
        """Whether there are rules at all."""
        ...


class AllowAll:
    """The rule while no security is configured: the listener is on loopback, everyone may."""

    is_on = False

    def allows(
        self,
        principal: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        host: str = WILDCARD,
    ) -> bool:
        return True

    def allows_some(
        self, principal: str, operation: Operation, resource: ResourceType, host: str = WILDCARD
    ) -> bool:
        return True


@dataclass(slots=True)
class Context:
    """The node, as far as handlers may touch it."""

    node_id: NodeId
    configs: BrokerConfigs
    partitions: Partitions
    follower: MetadataWatcher
    losses: RecentFailures
    membership: ClusterMembership
    store: Store
    disk: Disk
    clock: WallClock
    random: Random
    workers: Workers
    producer_ids: ProducerIds
    groups: GroupCoordinator
    txns: TxnCoordinator
    queues: QueueCoordinator
    queue_admin: QueueAdmin
    queue_reach: QueueRouter
    positions: Positions
    registry: RegistryCoordinator
    audit: AuditLog
    metrics: Metrics
    data_dir: str
    meter: "Meter"
    authorizer: AuthorizerPort = field(default_factory=AllowAll)
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)
    replica_sessions: ReplicaSessions = field(default_factory=ReplicaSessions)
    share_sessions: ShareSessions = field(default_factory=ShareSessions)
    read_ahead: ReadAhead = field(default_factory=ReadAhead)
    looking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOOKS_MAX))
    """Held while a producer's batch is unpacked."""
    turns: FairTurns = field(default_factory=FairTurns)
    """Turns of building answers that may be large, over the Kafka protocol and over HTTP."""
    listings: Listings = field(default_factory=Listings)
    encryption: LogEncryption | None = None
    """None: this node has no key to encrypt with."""
    leader_throttle: Throttle | None = None
    """Holds back what followers that are not in sync copy from here."""

    fetch_bytes_max: int = 0
    """`fetch.max.bytes`, read once for each change of config instead of once for each fetch."""
    has_replica_selector: bool = False
    """Whether consumers are sent to replicas near them; see `read_replicas`."""

    failed_logins: FailedLogins = field(init=False)

    def __post_init__(self) -> None:
        self.failed_logins = FailedLogins(self.metrics.failed_logins)

    @property
    def image(self) -> Image:
        return self.follower.image

    async def reached(self, revision: int) -> None:
        """Waits until this node knows, and has acted on, everything up to `revision`."""
        await self.follower.reached(revision)
        await self.partitions.reached(revision)

    def authorize(
        self, call: "Call", operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        caller = call.caller
        if self.authorizer.allows(caller.principal, operation, resource, name, caller.peer):
            return True
        call.note_denied(f"{resource.name.lower()}:{name}")
        return False


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
