"""Every API without permissions reveals and changes nothing; with exactly its required permissions
it is answered, and without one of them it is denied.

Requests are built from the declaration of each message: names of topics, groups and the like are
those of existing resources. So an API that is added is tested here as well; a handler that forgets
to check permissions answers, and fails the test.
"""

import asyncio
import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, PeerError
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.broker.api.call import Call
from penstock.broker.api.route_row import Needs, Operation, ResourceType, Route
from penstock.broker.api.routes import ROUTES
from penstock.cluster.access.authorizer import Authorizer
from penstock.cluster.metadata.store_keys import NO_LEADER
from penstock.security.acl_types import Permission
from penstock.security.acls import AccessControl, AclEntry, Resource
from penstock.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicState
from penstock.wire.schema import Field, wire_of
from tests.run_with import run_with
from tests.unit.broker.api.harness import Client, Node, on_node
from tests.unit.gateway.http.granted_permissions import AllowAll

TOPIC, GROUP, OTHER = "secret-topic", "secret-group", "other"
DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
HIDDEN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}
"""As if it were not there."""
FILTERED = {
    "Metadata",
    "DescribeCluster",
    "ListGroups",
    "ListTransactions",
    "DescribeLogDirs",
    "ListConfigResources",
}
"""APIs that answer with what the caller may see: nothing."""
NAMES = {
    "name": TOPIC,
    "topic": TOPIC,
    "topic_name": TOPIC,
    "group_id": GROUP,
    "group": GROUP,
    "key": GROUP,
    "resource_name": TOPIC,
    "transactional_id": "secret-txn",
    "v3_and_below_transactional_id": "secret-txn",
    "member_id": "member",
    "mechanism": "PLAIN",
    "principal": "User:eve",
    "host": "*",
    "user": "eve",
}
NUMBERS = {"resource_type": 2, "resource_pattern_type": 3, "replica_id": -1, "acks": -1}
OVERRIDES: dict[str, dict[str, Any]] = {
    "DeleteTopics": {
        "topics": [DeleteTopicState(name=TOPIC, topic_id=NO_TOPIC_ID)],
        "topic_names": [],
    },
    "ListTransactions": {"state_filters": []},
}
"""Fields that cannot be requested together, or would only be repeated."""
GUARDED = [route for route in ROUTES if route.needs is not None]


def filled(declared: type[Any], version: int, topic_id: TopicId) -> Any:
    """An instance with everything in it that this version carries."""
    wire = wire_of(declared)
    values = {
        field.name: value_of(field, version, topic_id)
        for field in wire.fields
        if field.since <= version and (field.until is None or version <= field.until)
    }
    return declared(**values)


def value_of(field: Field, version: int, topic_id: TopicId) -> Any:
    kind = field.kind
    if kind == "array":
        if field.of is None:
            return []
        one = (
            value_of(field.of, version, topic_id)
            if isinstance(field.of, Field)
            else filled(field.of, version, topic_id)
        )
        if isinstance(field.of, Field) and field.of.kind == "string":
            is_group = "group" in field.name or "coordinator" in field.name
            one = GROUP if is_group else NAMES.get(field.name.removesuffix("s"), TOPIC)
        return [one]
    if kind in ("struct", "nested"):
        assert isinstance(field.of, type)
        return filled(field.of, version, topic_id)
    if kind == "string":
        return NAMES.get(field.name, TOPIC if "topic" in field.name else "x")
    if kind == "uuid":
        return topic_id
    if kind == "boolean":
        return False
    if kind in ("bytes", "records"):
        return b""
    return NUMBERS.get(field.name, 0)


def codes_in(answer: Any) -> set[int]:
    """Every error code anywhere in an answer."""
    found: set[int] = set()
    for field in wire_of(type(answer)).fields:
        value = getattr(answer, field.name, None)
        if field.name.endswith("error_code") and value:
            found.add(value)
        for part in value if isinstance(value, list | tuple) else [value]:
            if hasattr(type(part), "WIRE"):
                found |= codes_in(part)
    return found


async def ask(node: Node, route: Route, topic_id: TopicId) -> Any:
    client = Client()
    client.principal = "User:eve"
    version = route.versions[1]
    request = filled(route.request, version, topic_id)
    for name, value in OVERRIDES.get(route.name, {}).items():
        setattr(request, name, value)
    pending, answer = node.begin(route.handler, version, request, client)
    call: Call = pending.call
    assert call.principal == "User:eve"
    if inspect.isawaitable(answer):
        answer = await answer
    return answer if answer is not None else await pending.reply()


async def prepare(node: Node) -> TopicId:
    from penstock.broker.api.admin.topics import create_topics

    wanted = CreatableTopic(
        name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=5000)
    answer = await node.ask(create_topics, 5, request)
    assert answer.topics[0].error_code == ErrorCode.NONE
    return node.ctx.image.topics[TOPIC].id


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.name)
@run_with(on_node)
async def test_request_without_permissions_reveals_and_changes_nothing(
    node: Node, *, route: Route
) -> None:
    topic_id = await prepare(node)
    node.ctx.authorizer = DenyAll()
    before = node.ctx.image
    answer = await ask(node, route, topic_id)
    codes = codes_in(answer)
    if route.name in FILTERED:
        assert TOPIC not in repr(answer)
        assert GROUP not in repr(answer)
    else:
        assert codes, f"{route.name} was answered: {answer}"
        assert codes <= DENIED | HIDDEN, f"{route.name}: {sorted(codes)}"
    after = node.ctx.image
    assert (after.topics, after.acls, after.users) == (before.topics, before.acls, before.users)
    assert after.group_configs == before.group_configs
    assert all(record.leader != NO_LEADER for record in after.topics[TOPIC].partitions)


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.name)
@run_with(on_node)
async def test_request_with_all_permissions_is_not_denied(node: Node, *, route: Route) -> None:
    topic_id = await prepare(node)
    node.ctx.authorizer = AllowAll()
    try:
        async with asyncio.timeout(30):
            answer = await ask(node, route, topic_id)
    except (PeerError, TimeoutError):
        return  # It makes no sense otherwise, or waits for something: not a matter of rights.
    assert not codes_in(answer) & DENIED


# -- exactly what each needs ------------------------------------------------------------------


def topic(operation: Operation) -> Needs:
    return Needs(ResourceType.TOPIC, operation)


def group(operation: Operation) -> Needs:
    return Needs(ResourceType.GROUP, operation)


def txn(operation: Operation) -> Needs:
    return Needs(ResourceType.TRANSACTIONAL_ID, operation)


def cluster(operation: Operation) -> Needs:
    return Needs(ResourceType.CLUSTER, operation)


READ, WRITE, DELETE = Operation.READ, Operation.WRITE, Operation.DELETE
ALTER, DESCRIBE, ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
SEE_CONFIGS, SET_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
NEEDED: dict[str, tuple[Needs, ...]] = {
    "Produce": (topic(WRITE),),
    "Fetch": (topic(READ),),
    "ListOffsets": (topic(DESCRIBE),),
    "Metadata": (topic(DESCRIBE),),
    "OffsetCommit": (group(READ), topic(READ)),
    "OffsetFetch": (group(DESCRIBE), topic(DESCRIBE)),
    "FindCoordinator": (group(DESCRIBE),),
    "JoinGroup": (group(READ),),
    "Heartbeat": (group(READ),),
    "LeaveGroup": (group(READ),),
    "SyncGroup": (group(READ),),
    "DescribeGroups": (group(DESCRIBE),),
    "ListGroups": (group(DESCRIBE),),
    "CreateTopics": (topic(Operation.CREATE),),
    "DeleteTopics": (topic(DELETE),),
    "DeleteRecords": (topic(DELETE),),
    "InitProducerId": (txn(WRITE),),
    "OffsetForLeaderEpoch": (topic(DESCRIBE),),
    "AddPartitionsToTxn": (cluster(ACTION),),
    "AddOffsetsToTxn": (txn(WRITE), group(READ)),
    "EndTxn": (txn(WRITE),),
    "WriteTxnMarkers": (cluster(ACTION),),
    "TxnOffsetCommit": (txn(WRITE), group(READ), topic(READ)),
    "DescribeAcls": (cluster(DESCRIBE),),
    "CreateAcls": (cluster(ALTER),),
    "DeleteAcls": (cluster(ALTER),),
    "DescribeConfigs": (topic(SEE_CONFIGS),),
    "AlterConfigs": (topic(SET_CONFIGS),),
    "AlterReplicaLogDirs": (cluster(ALTER),),
    "DescribeLogDirs": (cluster(DESCRIBE),),
    "CreatePartitions": (topic(ALTER),),
    "DeleteGroups": (group(DELETE),),
    "ElectLeaders": (cluster(ALTER),),
    "IncrementalAlterConfigs": (topic(SET_CONFIGS),),
    "AlterPartitionReassignments": (cluster(ALTER),),
    "ListPartitionReassignments": (cluster(DESCRIBE),),
    "OffsetDelete": (group(DELETE), topic(READ)),
    "DescribeClientQuotas": (cluster(SEE_CONFIGS),),
    "AlterClientQuotas": (cluster(SET_CONFIGS),),
    "DescribeUserScramCredentials": (cluster(DESCRIBE),),
    "AlterUserScramCredentials": (cluster(ALTER),),
    "UpdateFeatures": (cluster(ALTER),),
    "DescribeCluster": (),
    "DescribeProducers": (topic(READ),),
    "UnregisterBroker": (cluster(ALTER),),
    "DescribeTransactions": (txn(DESCRIBE),),
    "ListTransactions": (txn(DESCRIBE),),
    "ConsumerGroupHeartbeat": (group(READ), topic(DESCRIBE)),
    "ConsumerGroupDescribe": (group(DESCRIBE),),
    "ListConfigResources": (cluster(SEE_CONFIGS),),
    "DescribeTopicPartitions": (topic(DESCRIBE),),
    "ShareGroupHeartbeat": (group(READ), topic(DESCRIBE)),
    "ShareGroupDescribe": (group(DESCRIBE),),
    "ShareFetch": (group(READ), topic(READ)),
    "ShareAcknowledge": (group(READ), topic(READ)),
    "DescribeShareGroupOffsets": (group(DESCRIBE), topic(DESCRIBE)),
    "AlterShareGroupOffsets": (group(READ), topic(READ)),
    "DeleteShareGroupOffsets": (group(DELETE), topic(READ)),
    "KeepQueueState": (cluster(ACTION),),
    "TellQueue": (cluster(ACTION),),
    "TakeFromQueues": (cluster(ACTION),),
    "SettleLeases": (cluster(ACTION),),
    "InspectQueues": (group(DESCRIBE), topic(DESCRIBE)),
    "ChangeQueues": (group(READ), topic(READ)),
    "ListPositions": (cluster(DESCRIBE),),
    "AskRegistry": (cluster(ACTION),),
    "DescribeKeys": (cluster(DESCRIBE),),
    "RotateKeys": (cluster(ALTER),),
    "AppendAudit": (cluster(ACTION),),
    "CreateAccessKey": (cluster(ALTER),),
    "DescribeAccessKeys": (cluster(DESCRIBE),),
    "DeleteAccessKey": (cluster(ALTER),),
}
"""Kafka's table of rights, and ours for our own APIs: all of these together, for a request that
names one topic, one group and one transactional id."""
GROUP_FIRST = {
    "ShareFetch",
    "ShareAcknowledge",
    "DescribeShareGroupOffsets",
    "DeleteShareGroupOffsets",
}
"""Topics are looked at only for a group, or a session, that is there: see `test_share`,
`test_share_acknowledge` and `test_share_offsets`."""
NEVER_DENIED = {"Metadata", "DescribeCluster", "ListGroups", "ListTransactions"}
RESOURCES = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: "kafka-cluster",
    ResourceType.TRANSACTIONAL_ID: "secret-txn",
}


class Exactly(Authorizer):
    """Authorizer that grants exactly these permissions."""

    def __init__(self, needs: Iterable[Needs]) -> None:
        lists = {
            Resource(need.resource, RESOURCES[need.resource]): (
                AclEntry("User:eve", "*", need.operation, Permission.ALLOW),
            )
            for need in needs
        }
        self._rules = AccessControl(lists)


async def prepare_all(node: Node) -> TopicId:
    """And coordinators that know of nothing, but answer."""
    topic_id = await prepare(node)
    await node.ctx.group.groups.ensure()
    await node.ctx.transaction.txns.ensure()
    await asyncio.sleep(1)
    return topic_id


async def codes_with(node: Node, route: Route, topic_id: TopicId, needs: Iterable[Needs]) -> Any:
    """The error codes of the answer; None: it waits for something, or makes no sense."""
    node.ctx.authorizer = Exactly(needs)
    try:
        async with asyncio.timeout(30):
            return codes_in(await ask(node, route, topic_id))
    except (PeerError, TimeoutError):
        return None


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.name)
@run_with(on_node)
async def test_required_permissions_are_sufficient(node: Node, *, route: Route) -> None:
    codes = await codes_with(node, route, await prepare_all(node), NEEDED[route.name])
    assert not codes or not codes & DENIED, sorted(codes)


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.name)
@run_with(on_node)
async def test_request_missing_one_permission_is_denied(node: Node, *, route: Route) -> None:
    if route.name in NEVER_DENIED:
        return
    needs = NEEDED[route.name]
    looked_at = 1 if route.name in GROUP_FIRST else len(needs)

    topic_id = await prepare_all(node)
    for at in range(looked_at):
        codes = await codes_with(node, route, topic_id, needs[:at] + needs[at + 1 :])
        assert codes, f"without {needs[at]} it was answered"
        assert codes & (DENIED | HIDDEN)


def test_permission_table_covers_every_api() -> None:
    assert {route.name for route in GUARDED} == NEEDED.keys()


class DenyAll:
    """Rules that allow nothing to any principal."""

    is_on = True

    def __init__(self) -> None:
        self._rules = AccessControl({})

    allows = Authorizer.allows
    allows_some = Authorizer.allows_some


def test_only_authentication_apis_need_no_permission() -> None:
    assert {route.name for route in ROUTES if route.needs is None} == {
        "ApiVersions",
        "SaslHandshake",
        "SaslAuthenticate",
    }
