"""Groups of either kind come out in one shape, whatever versions a broker speaks."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.client.admin.groups import (
    GroupListing,
    Lag,
    delete_group,
    describe_group,
    list_groups,
    measure_lag,
)
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed
from penstock.client.errors import ConnectionLost
from penstock.client.metadata import TopicPartition
from penstock.state.groups.consumer_protocol import (
    Assignment,
    ProtocolTopicPartitions,
    Subscription,
    write_assignment,
    write_subscription,
)
from penstock.wire.control_batches import encode_marker
from penstock.wire.messages.classic_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
    DescribedConsumerGroup,
)
from penstock.wire.records import Record, encode
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.client.group_answers import Committing
from tests.unit.client.model import CLOSE, ModelBroker, ModelLog, with_model

CONSUMER_DESCRIBE = 69
DESCRIBE = 15
FIND = 10


def described_consumer(code: ErrorCode = ErrorCode.NONE) -> ConsumerGroupDescribeResponse:
    def assignment(*indexes: int) -> ConsumerGroupDescribeAssignment:
        rows = ConsumerGroupDescribeTopicPartitions(
            topic_id=TopicId(bytes(16)), topic_name="t", partitions=list(indexes)
        )
        return ConsumerGroupDescribeAssignment(topic_partitions=[rows])

    member = ConsumerGroupDescribeMember(
        member_id="m",
        instance_id="i",
        member_epoch=3,
        client_id="c",
        client_host="/10.0.0.1",
        subscribed_topic_names=["t"],
        assignment=assignment(1, 0),
        target_assignment=assignment(1),
    )
    row = DescribedConsumerGroup(
        error_code=int(code),
        group_id="g",
        group_state="Reconciling",
        group_epoch=4,
        assignment_epoch=4,
        assignor_name="uniform",
        members=[] if code else [member],
    )
    return ConsumerGroupDescribeResponse(groups=[row])


def described_classic(
    state: str = "Stable", code: ErrorCode = ErrorCode.NONE, *members: DescribedGroupMember
) -> DescribeGroupsResponse:
    row = DescribedGroup(
        error_code=int(code),
        group_id="g",
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=members,
    )
    return DescribeGroupsResponse(groups=[row])


def classic_member(member_id: str, metadata: bytes, assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member_id,
        client_id="c",
        client_host="/10.0.0.1",
        member_metadata=metadata,
        member_assignment=assignment,
    )


@run_with(with_model)
async def test_consumer_group_is_described_with_its_assignment(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Committing(broker)
    broker.answers[ConsumerGroupDescribeRequest] = lambda request: described_consumer()
    info = await describe_group(cluster, "g")
    assert (info.state, info.kind, info.assignor, info.epoch, info.coordinator_id) == (
        "Reconciling",
        "consumer",
        "uniform",
        4,
        1,
    )
    (member,) = info.members
    assert member.host == "10.0.0.1"
    assert member.assigned == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert member.target == (TopicPartition("t", 1),)
    assert info.owner_of(TopicPartition("t", 0)) == member
    assert info.owner_of(TopicPartition("t", 2)) is None


@pytest.mark.parametrize("knows_kip_848", [True, False])
@run_with(with_model)
async def test_classic_group_is_found_on_any_broker_version(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, knows_kip_848: bool
) -> None:
    Committing(broker)
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    broker.answers[ConsumerGroupDescribeRequest] = lambda request: described_consumer(missing)
    if not knows_kip_848:
        del broker.versions[CONSUMER_DESCRIBE]
    good = classic_member(
        "b",
        write_subscription(Subscription(topics=["t"])),
        write_assignment(
            Assignment(assigned_partitions=[ProtocolTopicPartitions(topic="t", partitions=[2, 1])]),
            3,
        ),
    )
    odd = classic_member("a", b"\xff\xff\xff", b"\x00\x01\x7f\xff\xff\xff")
    broker.answers[DescribeGroupsRequest] = lambda request: described_classic(
        "Stable", ErrorCode.NONE, good, odd
    )
    info = await describe_group(cluster, "g")
    assert (info.kind, info.assignor, info.epoch) == ("classic", "range", None)
    assert [(m.member_id, m.topics, m.assigned) for m in info.members] == [
        ("a", (), ()),
        ("b", ("t",), (TopicPartition("t", 1), TopicPartition("t", 2))),
    ]
    asked = broker.count(ConsumerGroupDescribeRequest)
    assert asked == (1 if knows_kip_848 else 0)


@pytest.mark.parametrize("version", [5, 6])
@run_with(with_model)
async def test_unknown_group_is_refused_in_every_version(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, version: int
) -> None:
    Committing(broker)
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    broker.answers[ConsumerGroupDescribeRequest] = lambda request: described_consumer(missing)
    code = missing if version >= 6 else ErrorCode.NONE
    broker.answers[DescribeGroupsRequest] = lambda request: described_classic("Dead", code)
    broker.versions[DESCRIBE] = (0, version)
    with pytest.raises(Refused, match="group 'g' does not exist") as caught:
        await describe_group(cluster, "g")
    assert caught.value.code is missing


@run_with(with_model)
async def test_moved_coordinator_is_looked_up_again(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Committing(broker)
    codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
    broker.answers[ConsumerGroupDescribeRequest] = lambda request: described_consumer(codes.pop(0))
    assert (await describe_group(cluster, "g")).name == "g"
    assert broker.count(FindCoordinatorRequest) == 3


@run_with(with_model)
async def test_coordinator_response_of_an_old_broker_is_understood(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Committing(broker)
    broker.versions[FIND] = (0, 3)
    await cluster.close()
    await cluster.bootstrap()  # Versions are agreed on once for each connection.
    broker.answers[ConsumerGroupDescribeRequest] = lambda request: described_consumer()
    assert (await describe_group(cluster, "g")).coordinator_id == 1


@run_with(with_model)
async def test_listing_is_sorted_and_waits_for_a_loading_coordinator(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]

    def answer(request: ListGroupsRequest) -> ListGroupsResponse:
        code = codes.pop(0)
        rows = [
            ListedGroup(
                group_id="z",
                protocol_type="consumer",
                group_state="Stable",
                group_type="Consumer",
            ),
            ListedGroup(group_id="a", protocol_type="", group_state="Empty", group_type="Classic"),
        ]
        return ListGroupsResponse(error_code=int(code), groups=[] if code else rows)

    broker.answers[ListGroupsRequest] = answer
    assert await list_groups(cluster) == [
        GroupListing("a", "Empty", "classic", "", 1),
        GroupListing("z", "Stable", "consumer", "consumer", 1),
    ]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.NON_EMPTY_GROUP, "group 'g': it has members"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "group 'g' does not exist"),
    ],
)
@run_with(with_model)
async def test_refused_deletion_has_a_reason(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, code: ErrorCode, words: str
) -> None:
    Committing(broker)
    broker.answers[DeleteGroupsRequest] = lambda request: DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id="g", error_code=int(code))]
    )
    with pytest.raises(Refused) as caught:
        await delete_group(cluster, "g")
    assert (caught.value.code, str(caught.value)) == (code, words)


@run_with(with_model)
async def test_deletion_with_an_unknown_outcome_is_not_repeated(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Committing(broker)
    broker.answers[DeleteGroupsRequest] = lambda request: CLOSE
    with pytest.raises(ConnectionLost):
        await delete_group(cluster, "g")
    assert broker.count(DeleteGroupsRequest) == 1


NOW_MS = 1_000_000


def place(index: int) -> TopicPartition:
    return TopicPartition("t", index)


def write(log: ModelLog, *stamps: int, value: bytes = b"v") -> None:
    log.append(encode([Record(0, stamp, None, value, ()) for stamp in stamps]))


def by_partition(lags: list[Lag]) -> dict[int, tuple[int | None, int | None]]:
    return {lag.where.partition: (lag.records, lag.age_ms(NOW_MS)) for lag in lags}


@run_with(with_model)
async def test_lag_age_is_that_of_the_record_at_the_committed_offset(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    logs = broker.create("t", 5)
    write(logs[0], 1_000, 2_000, 3_000)
    write(logs[1], 5_000)
    write(logs[3], 9_000)
    committed = {place(0): Committed(1), place(1): Committed(1), place(4): Committed(0)}
    lags = await measure_lag(cluster, committed, [place(0), place(3)])
    assert by_partition(lags) == {
        0: (2, NOW_MS - 2_000),
        1: (0, 0),
        3: (None, None),  # Assigned, and nothing committed yet.
        4: (0, 0),
    }


@run_with(with_model)
async def test_lag_skips_offsets_without_data(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    logs = broker.create("t", 2)
    for log in logs:
        # A client may not write one, so it is put there directly.
        log.batches.append(
            encode_marker(
                committed=True,
                producer_id=7,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=500,
            )
        )
        log.end_offset = 1
    # Too large to come in the fetch that brings the marker.
    write(logs[0], 4_000, value=bytes(100_000))
    committed = {place(0): Committed(0), place(1): Committed(0)}
    lags = await measure_lag(cluster, committed)
    assert by_partition(lags) == {0: (2, NOW_MS - 4_000), 1: (1, None)}


@run_with(with_model)
async def test_deleted_unread_records_count_and_the_first_left_gives_the_age(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    (log,) = broker.create("t")
    write(log, 1_000, 2_000)
    write(log, 3_000)
    log.start_offset = 2
    (lag,) = await measure_lag(cluster, {place(0): Committed(0)})
    assert (lag.records, lag.age_ms(NOW_MS), lag.start_offset) == (3, NOW_MS - 3_000, 2)


@run_with(with_model)
async def test_large_batches_in_many_partitions_are_all_read(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    logs = broker.create("t", 20)
    for index, log in enumerate(logs):
        write(log, 1_000 + index, value=bytes(100_000))
        write(log, 9_000, value=bytes(100_000))
    committed = {place(index): Committed(0) for index in range(20)}
    lags = await measure_lag(cluster, committed)
    assert [lag.first_unread_ms for lag in lags] == [1_000 + index for index in range(20)]


@run_with(with_model)
async def test_deleted_topic_and_commit_beyond_the_end_have_no_lag(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t")
    gone = TopicPartition("gone", 0)
    lags = await measure_lag(cluster, {gone: Committed(4), place(0): Committed(9)})
    assert [(lag.where, lag.records, lag.end_offset) for lag in lags] == [
        (gone, None, None),
        (place(0), 0, 0),
    ]
