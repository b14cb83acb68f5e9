"""Contexts of handlers: one object for each family of APIs.

The type of a handler's first parameter names its family, and the dispatcher passes that object. So
a produce cannot reach the transaction coordinator by accident. Families share parts by holding the
same objects, so a handler reaches each part with one attribute.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NotRequired, Protocol, TypedDict, TypeVar, Unpack

from penstock.base.fair_scheduler import FairScheduler
from penstock.base.ids import NodeId
from penstock.base.ports import Disk, Random, Store, WallClock, Workers
from penstock.broker.api.call import Call
from penstock.broker.api.data.fetch_sessions import FetchSessions
from penstock.broker.api.data.read_ahead import ReadAhead
from penstock.broker.api.data.replica_fetch_sessions import ReplicaSessions
from penstock.broker.api.large_replies import Listings
from penstock.broker.api.metrics import Metrics
from penstock.broker.api.queues.share_sessions import ShareSessions
from penstock.broker.api.quota import Meter
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.broker.api.security.failed_logins import FailedLogins
from penstock.cluster.configs.effective_configs import BrokerConfigs
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

INSPECTIONS_MAX = 1
"""Limits batches that are decompressed at the same time: other work needs a core, too."""


class AuthorizerPort(Protocol):
    """Checks permissions, for every protocol."""

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
        """True if the operation is allowed on at least one resource of this type."""
        ...

    @property
    def is_on(self) -> bool:
        """True if any ACLs apply."""
        ...


@dataclass(slots=True, kw_only=True)
class ApiFamily:
    """Parts of every family: the metadata image of this node, and permissions."""

    watcher: MetadataWatcher
    authorizer: AuthorizerPort

    @property
    def image(self) -> Image:
        return self.watcher.image

    def authorize(
        self, call: Call, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        caller = call.caller
        if self.authorizer.allows(caller.principal, operation, resource, name, caller.peer):
            return True
        call.note_denied(f"{resource.name.lower()}:{name}")
        return False


@dataclass(slots=True, kw_only=True)
class PartitionFamily(ApiFamily):
    """Families that reach the partitions of this node."""

    node_id: NodeId
    partitions: Partitions

    async def reached(self, revision: int) -> None:
        """Waits until this node has applied all metadata up to `revision`."""
        await self.watcher.reached(revision)
        await self.partitions.reached(revision)


@dataclass(slots=True, kw_only=True)
class ProduceContext(PartitionFamily):
    """Context of Produce and its checks."""

    configs: BrokerConfigs
    clock: WallClock
    workers: Workers
    metrics: Metrics
    membership: ClusterMembership
    txns: TxnCoordinator
    registry: RegistryCoordinator
    inspecting: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(INSPECTIONS_MAX)
    )
    """Held while a batch of a producer is decompressed."""


@dataclass(slots=True)
class ReplicaReads:
    """Parts for fetches of followers, and for consumers that read from followers."""

    sessions: ReplicaSessions
    throttle: Throttle | None = None
    """Limits the rate of replication to followers that are not in sync."""
    has_selector: bool = False
    """True if consumers are sent to close replicas; see `data.fetch`."""


@dataclass(slots=True, kw_only=True)
class FetchContext(PartitionFamily):
    """Context of Fetch, for consumers and followers."""

    clock: WallClock
    workers: Workers
    metrics: Metrics
    meter: Meter
    fetch_sessions: FetchSessions
    fetch_bytes_max: int
    """`fetch.max.bytes`, read on a change of config and not on each fetch."""
    replicas: ReplicaReads
    read_ahead: ReadAhead = field(default_factory=ReadAhead)


@dataclass(slots=True, kw_only=True)
class MetadataContext(PartitionFamily):
    """Context of Metadata, ListOffsets and related APIs."""

    configs: BrokerConfigs
    store: Store
    random: Random
    workers: Workers
    membership: ClusterMembership
    failures: RecentFailures
    scheduler: FairScheduler
    """Fair scheduling of building large responses, for Kafka and HTTP."""
    listings: Listings = field(default_factory=Listings)


@dataclass(slots=True, kw_only=True)
class GroupContext(ApiFamily):
    """Context of groups: members, offsets, administration, and finding coordinators."""

    configs: BrokerConfigs
    random: Random
    metrics: Metrics
    membership: ClusterMembership
    failures: RecentFailures
    groups: GroupCoordinator
    txns: TxnCoordinator
    queues: QueueCoordinator
    queue_admin: QueueAdmin
    scheduler: FairScheduler


@dataclass(slots=True, kw_only=True)
class TransactionContext(PartitionFamily):
    """Context of transactions and producer ids."""

    configs: BrokerConfigs
    random: Random
    groups: GroupCoordinator
    txns: TxnCoordinator
    producer_ids: ProducerIds
    scheduler: FairScheduler


@dataclass(slots=True, kw_only=True)
class ShareContext(PartitionFamily):
    """Context of ShareFetch and ShareAcknowledge."""

    configs: BrokerConfigs
    clock: WallClock
    metrics: Metrics
    queues: QueueCoordinator
    fetch_bytes_max: int
    """`fetch.max.bytes`, as in `FetchContext`."""
    share_sessions: ShareSessions = field(default_factory=ShareSessions)


@dataclass(slots=True, kw_only=True)
class QueueContext(ApiFamily):
    """Context of queue administration and of requests from other nodes."""

    random: Random
    groups: GroupCoordinator
    queues: QueueCoordinator
    queue_admin: QueueAdmin
    queue_router: QueueRouter
    positions: Positions


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Data directory of the node."""

    disk: Disk
    path: str


@dataclass(slots=True, kw_only=True)
class AdminContext(PartitionFamily):
    """Context of the administration of topics, configs, leaders and disks."""

    configs: BrokerConfigs
    store: Store
    random: Random
    workers: Workers
    metrics: Metrics
    scheduler: FairScheduler
    directory: DataDirectory
    encryption: LogEncryption | None
    """None: this node has no encryption key."""


@dataclass(slots=True, kw_only=True)
class SecurityContext(PartitionFamily):
    """Context of authentication, users, ACLs, quotas and the audit log."""

    configs: BrokerConfigs
    store: Store
    clock: WallClock
    random: Random
    audit: AuditLog
    failed_logins: FailedLogins
    scheduler: FairScheduler


@dataclass(slots=True, kw_only=True)
class Context:
    """All families, for the endpoints, and the parts that several families share."""

    produce: ProduceContext
    fetch: FetchContext
    metadata: MetadataContext
    group: GroupContext
    transaction: TransactionContext
    share: ShareContext
    queue: QueueContext
    admin: AdminContext
    security: SecurityContext

    @property
    def families(self) -> tuple[ApiFamily, ...]:
        return (
            self.produce,
            self.fetch,
            self.metadata,
            self.group,
            self.transaction,
            self.share,
            self.queue,
            self.admin,
            self.security,
        )

    def of(self, handler: Callable[..., Any]) -> ApiFamily:
        """Returns the family that a handler's first parameter, `ctx`, names."""
        wanted: type[ApiFamily] = handler.__annotations__["ctx"]
        return next(family for family in self.families if isinstance(family, wanted))

    def limit_fetches(self, bytes_max: int) -> None:
        """Applies a change of `fetch.max.bytes`."""
        self.fetch.fetch_bytes_max = self.share.fetch_bytes_max = bytes_max

    # -- shared parts -----------------------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        return self.admin.node_id

    @property
    def watcher(self) -> MetadataWatcher:
        return self.admin.watcher

    @property
    def image(self) -> Image:
        return self.admin.watcher.image

    @property
    def partitions(self) -> Partitions:
        return self.admin.partitions

    @property
    def configs(self) -> BrokerConfigs:
        return self.admin.configs

    @property
    def clock(self) -> WallClock:
        return self.security.clock

    @property
    def random(self) -> Random:
        return self.admin.random

    @property
    def workers(self) -> Workers:
        return self.admin.workers

    @property
    def metrics(self) -> Metrics:
        return self.admin.metrics

    @property
    def meter(self) -> Meter:
        return self.fetch.meter

    @property
    def authorizer(self) -> AuthorizerPort:
        return self.admin.authorizer

    @authorizer.setter
    def authorizer(self, authorizer: AuthorizerPort) -> None:
        for family in self.families:
            family.authorizer = authorizer

    async def reached(self, revision: int) -> None:
        """Waits until this node has applied all metadata up to `revision`."""
        await self.admin.reached(revision)


class Parts(TypedDict):
    """Parts of the families of a node."""

    node_id: NodeId
    configs: BrokerConfigs
    partitions: Partitions
    watcher: MetadataWatcher
    authorizer: AuthorizerPort
    failures: RecentFailures
    membership: ClusterMembership
    store: Store
    clock: WallClock
    random: Random
    workers: Workers
    producer_ids: ProducerIds
    groups: GroupCoordinator
    txns: TxnCoordinator
    queues: QueueCoordinator
    queue_admin: QueueAdmin
    queue_router: QueueRouter
    positions: Positions
    registry: RegistryCoordinator
    audit: AuditLog
    metrics: Metrics
    meter: Meter
    directory: DataDirectory
    encryption: NotRequired[LogEncryption | None]
    fetch_sessions: NotRequired[FetchSessions]
    replicas: NotRequired[ReplicaReads]


FamilyT = TypeVar("FamilyT", bound=ApiFamily)


def make_context(**parts: Unpack[Parts]) -> Context:
    """Builds each family from the parts that it has fields for."""
    given: dict[str, Any] = {
        "encryption": None,
        "failed_logins": FailedLogins(parts["metrics"].failed_logins),
        "fetch_bytes_max": parts["configs"].integer("fetch.max.bytes"),
        "fetch_sessions": FetchSessions(),
        "replicas": ReplicaReads(ReplicaSessions()),
        "scheduler": FairScheduler(),
        **parts,
    }

    def family(kind: type[FamilyT]) -> FamilyT:
        names = [one.name for one in fields(kind) if one.name in given]
        return kind(**{name: given[name] for name in names})

    return Context(
        produce=family(ProduceContext),
        fetch=family(FetchContext),
        metadata=family(MetadataContext),
        group=family(GroupContext),
        transaction=family(TransactionContext),
        share=family(ShareContext),
        queue=family(QueueContext),
        admin=family(AdminContext),
        security=family(SecurityContext),
    )
