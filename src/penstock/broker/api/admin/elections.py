"""ElectLeaders (api 43), versions 0-2; AlterPartitionReassignments (45), 0-1;
ListPartitionReassignments (46), 0.

ElectLeaders v1 adds the type of election, v2 flexible; with a null list it returns only partitions
that needed an election. AlterPartitionReassignments v1 can forbid a change of the replication
factor. Any node answers: a change is one compare-and-swap on each partition's state, and the
controller completes long changes. A reassignment is answered once it has started (KIP-455).
"""

import functools
from collections.abc import Iterable, Sequence

from penstock.base.errors import ErrorCode, Refused, shortened
from penstock.broker.api.call import Call
from penstock.broker.api.context import AdminContext
from penstock.broker.api.response_rows import may_cluster, settled
from penstock.broker.api.route_row import Operation
from penstock.cluster.controller import leader_elections, partition_updates, reassignment
from penstock.cluster.controller.controller import count_elections
from penstock.cluster.controller.leader_elections import Brokers, Rules
from penstock.cluster.controller.partition_updates import Changed, PartitionUpdate, UpdateOutcome
from penstock.cluster.metadata.image import Image, TopicImage
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

PREFERRED = 0
UNCLEAN = 1
PARTITIONS_MAX = 10_000
"""Limits the partitions in one request."""

PartitionPlace = tuple[str, int]
WantedElections = list[tuple[PartitionPlace, partition_updates.UpdateFunction]]


async def _change(
    ctx: AdminContext, wanted: WantedElections, timeout_ms: int
) -> list[tuple[PartitionPlace, UpdateOutcome]]:
    """Applies an update to each partition; returns the outcomes in the same order."""
    image = ctx.image
    rows: list[tuple[PartitionPlace, UpdateOutcome]] = []
    updates: list[PartitionUpdate] = []
    for number, (place, decide) in enumerate(wanted):
        name, index = place
        if number >= PARTITIONS_MAX:
            reason = f"One request may name {PARTITIONS_MAX} partitions."
            rows.append((place, Refused(ErrorCode.POLICY_VIOLATION, reason)))
        elif image.partition(name, index) is None:
            rows.append((place, Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        else:
            rows.append((place, None))
            updates.append(PartitionUpdate(image.topics[name], index, decide))
    outcomes = await partition_updates.apply(ctx.store, updates)
    count_elections(updates, outcomes, ctx.metrics.count_election)
    await _settle(ctx, outcomes, timeout_ms)
    known = iter(outcomes)
    return [(place, next(known) if row is None else row) for place, row in rows]


async def _settle(ctx: AdminContext, outcomes: Iterable[UpdateOutcome], timeout_ms: int) -> None:
    """Waits until this node has applied the changes, at most for the client's timeout."""
    done = [outcome.revision for outcome in outcomes if isinstance(outcome, Changed)]
    if done:
        await settled(ctx, max(done), timeout_ms)


# -- ElectLeaders -----------------------------------------------------------------------------


async def elect_leaders(
    ctx: AdminContext, call: Call, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    if not may_cluster(ctx, call, Operation.ALTER):
        return _no_election(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request)
    if request.election_type not in (PREFERRED, UNCLEAN):
        return _no_election(ErrorCode.INVALID_REQUEST, request)
    image = ctx.image
    if request.topic_partitions is None:
        places = [
            (name, index)
            for name, topic in image.topics.items()
            for index, record in enumerate(topic.partitions)
            if _needs_election(record, image.brokers, request.election_type)
        ]
    else:
        named = ((row.topic, index) for row in request.topic_partitions for index in row.partitions)
        places = list(dict.fromkeys(named))
    wanted: WantedElections = [
        (place, _election(ctx, image, place[0], request.election_type)) for place in places
    ]
    by_topic: dict[str, list[ElectLeadersPartitionResult]] = {}
    for (name, index), outcome in await _change(ctx, wanted, request.timeout_ms):
        row = _election_row(image, name, index, outcome)
        by_topic.setdefault(name, []).append(row)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=rows)
            for name, rows in by_topic.items()
        ]
    )


def _no_election(code: ErrorCode, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Returns an error for all partitions; v0 has no error code for the whole request."""
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=row.topic,
                partition_result=[
                    ElectLeadersPartitionResult(
                        partition_id=index, error_code=code, error_message=None
                    )
                    for index in row.partitions
                ],
            )
            for row in request.topic_partitions or ()
        ],
    )


def _needs_election(record: PartitionRecord, brokers: Brokers, election_type: int) -> bool:
    if election_type == PREFERRED:
        return record.leader != record.replicas[0]
    return record.leader not in brokers


def _election(
    ctx: AdminContext, image: Image, name: str, election_type: int
) -> partition_updates.UpdateFunction:
    def decide(record: PartitionRecord) -> PartitionRecord:
        brokers = image.brokers
        if not _needs_election(record, brokers, election_type):
            raise Refused(
                ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
            )
        if election_type == PREFERRED:
            after = leader_elections.prefer(record, brokers)
            if after is None:
                raise Refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            return after
        rules = leader_elections.rules_of(image.topics[name], ctx.configs)
        after = leader_elections.adapt(
            record, brokers, Rules(rules.min_isr, unclean=True, is_durable=rules.is_durable)
        )
        if after is None or after.leader not in brokers:
            raise Refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        return after

    return decide


def _election_row(
    image: Image, name: str, index: int, outcome: UpdateOutcome
) -> ElectLeadersPartitionResult:
    code, message = ErrorCode.NONE, None
    if isinstance(outcome, Refused):
        code, message = outcome.code, outcome.message or None
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            is_topic = name in image.topics
            what = f"partition as {name}-{index}" if is_topic else f"topic as {name}"
            message = shortened(f"No such {what}")
    return ElectLeadersPartitionResult(partition_id=index, error_code=code, error_message=message)


# -- reassignments ----------------------------------------------------------------------------


async def alter_partition_reassignments(
    ctx: AdminContext, call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    if not may_cluster(ctx, call, Operation.ALTER):
        return AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, responses=()
        )
    keep_factor = not request.allow_replication_factor_change
    image = ctx.image
    targets = {
        (topic.name, target.partition_index): target
        for topic in request.topics
        for target in topic.partitions
    }
    wanted: WantedElections = [
        (place, _move(ctx, image.topics.get(place[0]), image, target, keep_factor))
        for place, target in targets.items()
    ]
    by_topic: dict[str, list[ReassignablePartitionResponse]] = {}
    for (name, index), outcome in await _change(ctx, wanted, request.timeout_ms):
        by_topic.setdefault(name, []).append(_move_row(image, name, index, outcome))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[
            ReassignableTopicResponse(name=name, partitions=rows) for name, rows in by_topic.items()
        ],
    )


def _move(
    ctx: AdminContext,
    topic: TopicImage | None,
    image: Image,
    target: ReassignablePartition,
    keep_factor: bool,
) -> partition_updates.UpdateFunction:
    if topic is None:
        return lambda record: None
    rules = leader_elections.rules_of(topic, ctx.configs)
    if target.replicas is None:
        return functools.partial(reassignment.cancel, brokers=image.brokers, rules=rules)
    return functools.partial(
        reassignment.begin,
        target=target.replicas,
        brokers=image.brokers,
        rules=rules,
        keep_factor=keep_factor,
    )


def _move_row(
    image: Image, name: str, index: int, outcome: UpdateOutcome
) -> ReassignablePartitionResponse:
    code, message = ErrorCode.NONE, None
    if isinstance(outcome, Refused):
        code, message = outcome.code, outcome.message or None
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            what = f"partition {name}:{index}" if name in image.topics else f"a topic named {name}"
            message = shortened(f"Unable to find {what}.")
    return ReassignablePartitionResponse(
        partition_index=index, error_code=code, error_message=message
    )


def list_partition_reassignments(
    ctx: AdminContext, call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not may_cluster(ctx, call, Operation.DESCRIBE):
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, topics=()
        )
    image = ctx.image
    wanted: dict[str, Sequence[int]]
    if request.topics is None:
        wanted = {name: range(len(t.partitions)) for name, t in image.topics.items()}
    else:
        wanted = {row.name: row.partition_indexes for row in request.topics}
    ongoing = []
    for name, indexes in wanted.items():
        rows = [row for index in indexes if (row := _ongoing(image, name, index)) is not None]
        if rows:
            ongoing.append(OngoingTopicReassignment(name=name, partitions=rows))
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=ongoing
    )


def _ongoing(image: Image, name: str, index: int) -> OngoingPartitionReassignment | None:
    record = image.partition(name, index)
    if record is None or not reassignment.is_moving(record):
        return None
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=record.replicas,
        adding_replicas=record.adding,
        removing_replicas=record.removing,
    )
