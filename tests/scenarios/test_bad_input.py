"""Bad requests to groups and transactions: Kafka's own error, and nothing has changed.

Over the wire, against a broker process. `ROWS` is the table: what is wrong, the request, its
version, where its answer has the code, and the code.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from penstock.base.errors import ErrorCode as E
from penstock.wire.messages.classic_groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    MemberIdentity,
)
from penstock.wire.messages.consumer_groups import ConsumerGroupDescribeRequest
from penstock.wire.messages.offset_commit import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from penstock.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conftest import Broker, FreshBroker
from tests.scenarios.bad_input import Stage

METADATA_BYTES_MAX = 4_096
UNKNOWN, NOWHERE = "unknown", "no-such-group"


class Row(NamedTuple):
    """One bad request."""

    what: str
    request: Callable[[Stage], Any]
    version: int | None
    code_in: Callable[[Any], int]
    code: E


def top(reply: Any) -> int:
    return int(reply.error_code)


def first_member(reply: Any) -> int:
    return int(reply.error_code or reply.members[0].error_code)


def first_partition(reply: Any) -> int:
    return int(reply.topics[0].partitions[0].error_code)


def first_group(reply: Any) -> int:
    return int(reply.groups[0].error_code)


def first_result(reply: Any) -> int:
    return int(reply.results[0].error_code)


def first_added(reply: Any) -> int:
    row = reply.results_by_topic_v3_and_below[0].results_by_partition[0]
    return int(row.partition_error_code)


def first_batch(reply: Any) -> int:
    return int(reply.responses[0].partition_responses[0].error_code)


def first_txn(reply: Any) -> int:
    return int(reply.transaction_states[0].error_code)


def heartbeat(stage: Stage, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "group_id": stage.classic,
        "generation_id": stage.generation,
        "member_id": stage.member,
        "group_instance_id": None,
    }
    return HeartbeatRequest(**{**fields, **changes})


def leave(stage: Stage, member_id: str, instance: str | None = None, group: str = "") -> Any:
    who = MemberIdentity(member_id=member_id, group_instance_id=instance)
    return LeaveGroupRequest(group_id=group or stage.classic, members=[who])


def fetch(group: str, member_id: str, epoch: int) -> Any:
    row = OffsetFetchRequestGroup(
        group_id=group, member_id=member_id, member_epoch=epoch, topics=None
    )
    return OffsetFetchRequest(groups=[row])


def offset_delete(stage: Stage, group: str) -> Any:
    row = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name=stage.topic, partitions=[row])
    return OffsetDeleteRequest(group_id=group, topics=[topic])


def add(stage: Stage, name: str, producer: tuple[int, int], index: int = 0) -> Any:
    row = AddPartitionsToTxnTopic(name=stage.topic, partitions=[index])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[row],
    )


def add_offsets(name: str, producer: tuple[int, int], group: str) -> Any:
    return AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=group
    )


def end(name: str, producer: tuple[int, int], committed: bool = True) -> Any:
    return EndTxnRequest(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
    )


def txn_commit(stage: Stage, **changes: Any) -> Any:
    row = TxnOffsetCommitRequestPartition(
        partition_index=changes.pop("index", 0),
        committed_offset=9,
        committed_metadata=changes.pop("metadata", ""),
    )
    topic = TxnOffsetCommitRequestTopic(name=changes.pop("topic", stage.topic), partitions=[row])
    fields: dict[str, Any] = {
        "transactional_id": stage.open_txn,
        "group_id": stage.classic,
        "producer_id": stage.open_id,
        "producer_epoch": stage.open_epoch,
        "generation_id": stage.generation,
        "member_id": stage.member,
        "group_instance_id": None,
        "topics": [topic],
    }
    return TxnOffsetCommitRequest(**{**fields, **changes})


def init(name: str, timeout_ms: int = 60_000, producer: tuple[int, int] = (-1, -1)) -> Any:
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )


def opened(stage: Stage) -> tuple[int, int]:
    return stage.open_id, stage.open_epoch


def idle(stage: Stage) -> tuple[int, int]:
    return stage.idle_id, stage.idle_epoch


LONG = "x" * (METADATA_BYTES_MAX + 1)

# fmt: off
ROWS = [
    # Classic groups.
    Row("heartbeat: unknown member", lambda s: heartbeat(s, member_id=UNKNOWN), 4, top,
        E.UNKNOWN_MEMBER_ID),
    Row("heartbeat: stale generation", lambda s: heartbeat(s, generation_id=s.generation - 1), 4,
        top, E.ILLEGAL_GENERATION),
    Row("heartbeat: generation to come", lambda s: heartbeat(s, generation_id=99), 4, top,
        E.ILLEGAL_GENERATION),
    Row("heartbeat: foreign instance", lambda s: heartbeat(s, group_instance_id=s.instance), 4,
        top, E.FENCED_INSTANCE_ID),
    Row("heartbeat: unknown instance", lambda s: heartbeat(s, group_instance_id=UNKNOWN), 4, top,
        E.UNKNOWN_MEMBER_ID),
    Row("heartbeat: unknown group", lambda s: heartbeat(s, group_id=NOWHERE), 4, top,
        E.UNKNOWN_MEMBER_ID),
    Row("join: unknown member", lambda s: s.join(UNKNOWN), 9, top, E.UNKNOWN_MEMBER_ID),
    Row("join: unknown group and member", lambda s: s.join(UNKNOWN, group_id=NOWHERE), 9, top,
        E.UNKNOWN_MEMBER_ID),
    Row("join: foreign instance", lambda s: s.join(s.member, s.instance), 9, top,
        E.FENCED_INSTANCE_ID),
    Row("join: session too short", lambda s: s.join(s.member, session_timeout_ms=1), 9, top,
        E.INVALID_SESSION_TIMEOUT),
    Row("join: no group id", lambda s: s.join(group_id=""), 9, top, E.INVALID_GROUP_ID),
    Row("join: another protocol type", lambda s: s.join(s.member, protocol_type="connect"), 9,
        top, E.INCONSISTENT_GROUP_PROTOCOL),
    Row("join: no protocol", lambda s: s.join(s.member, protocols=[]), 9, top,
        E.INCONSISTENT_GROUP_PROTOCOL),
    Row("sync: unknown member", lambda s: s.sync(UNKNOWN), 5, top, E.UNKNOWN_MEMBER_ID),
    Row("sync: stale generation", lambda s: s.sync(s.member, generation_id=0), 5, top,
        E.ILLEGAL_GENERATION),
    Row("sync: foreign instance", lambda s: s.sync(s.member, instance=s.instance), 5, top,
        E.FENCED_INSTANCE_ID),
    Row("sync: unknown group", lambda s: s.sync(s.member, group_id=NOWHERE), 5, top,
        E.UNKNOWN_MEMBER_ID),
    Row("sync: another protocol", lambda s: s.sync(s.member, protocol_name="other"), 5, top,
        E.INCONSISTENT_GROUP_PROTOCOL),
    Row("leave: unknown member", lambda s: leave(s, UNKNOWN), 5, first_member,
        E.UNKNOWN_MEMBER_ID),
    Row("leave: foreign instance", lambda s: leave(s, s.member, s.instance), 5, first_member,
        E.FENCED_INSTANCE_ID),
    Row("leave: unknown group", lambda s: leave(s, s.member, group=NOWHERE), 5, first_member,
        E.UNKNOWN_MEMBER_ID),
    # Consumer groups.
    Row("beat: unknown member", lambda s: s.beat(UNKNOWN, 1), 1, top, E.UNKNOWN_MEMBER_ID),
    Row("beat: unknown group", lambda s: s.beat("m", 1, group_id=NOWHERE), 1, top,
        E.GROUP_ID_NOT_FOUND),
    Row("beat: epoch to come", lambda s: s.beat("m", 99), 1, top, E.FENCED_MEMBER_EPOCH),
    Row("beat: foreign instance", lambda s: s.beat("m", s.consumer_epoch, s.instance), 1, top,
        E.FENCED_INSTANCE_ID),
    Row("beat: instance in use", lambda s: s.beat("new", 0, s.instance), 1, top,
        E.UNRELEASED_INSTANCE_ID),
    Row("beat: unknown assignor", lambda s: s.beat("new", 0, server_assignor="other"), 1, top,
        E.UNSUPPORTED_ASSIGNOR),
    Row("beat: bad pattern", lambda s: s.beat("new", 0, subscribed_topic_regex="("), 1, top,
        E.INVALID_REGULAR_EXPRESSION),
    Row("beat: no group id", lambda s: s.beat("new", 0, group_id=""), 1, top, E.INVALID_REQUEST),
    Row("beat: joins without a rebalance timeout",
        lambda s: s.beat("new", 0, rebalance_timeout_ms=-1), 1, top, E.INVALID_REQUEST),
    # Positions.
    Row("commit: unknown member", lambda s: s.commit_request(s.classic, s.generation, UNKNOWN), 9,
        first_partition, E.UNKNOWN_MEMBER_ID),
    Row("commit: stale generation", lambda s: s.commit_request(s.classic, 0, s.member), 9,
        first_partition, E.ILLEGAL_GENERATION),
    Row("commit: foreign instance",
        lambda s: s.commit_request(s.classic, s.generation, s.member, instance=s.instance), 9,
        first_partition, E.FENCED_INSTANCE_ID),
    Row("commit: no member, group has members", lambda s: s.commit_request(s.classic, -1, ""), 9,
        first_partition, E.UNKNOWN_MEMBER_ID),
    Row("commit: unknown group", lambda s: s.commit_request(NOWHERE, 3, UNKNOWN), 8,
        first_partition, E.ILLEGAL_GENERATION),
    Row("commit: unknown group, by id", lambda s: s.commit_request(NOWHERE, 3, UNKNOWN), 9,
        first_partition, E.GROUP_ID_NOT_FOUND),
    Row("commit: no such partition",
        lambda s: s.commit_request(s.classic, s.generation, s.member, index=7), 9,
        first_partition, E.UNKNOWN_TOPIC_OR_PARTITION),
    Row("commit: no such topic",
        lambda s: s.commit_request(s.classic, s.generation, s.member, topic="no-such"), 9,
        first_partition, E.UNKNOWN_TOPIC_OR_PARTITION),
    Row("commit: oversize metadata",
        lambda s: s.commit_request(s.classic, s.generation, s.member, metadata=LONG), 9,
        first_partition, E.OFFSET_METADATA_TOO_LARGE),
    Row("commit: stale epoch", lambda s: s.commit_request(s.consumer, 0, "m"), 9,
        first_partition, E.STALE_MEMBER_EPOCH),
    Row("commit: unknown consumer member",
        lambda s: s.commit_request(s.consumer, s.consumer_epoch, UNKNOWN), 9, first_partition,
        E.UNKNOWN_MEMBER_ID),
    Row("commit: consumer member in an old version",
        lambda s: s.commit_request(s.consumer, s.consumer_epoch, "m"), 8, first_partition,
        E.UNSUPPORTED_VERSION),
    Row("fetch: unknown member", lambda s: fetch(s.consumer, UNKNOWN, 1), 9, first_group,
        E.UNKNOWN_MEMBER_ID),
    Row("fetch: stale epoch", lambda s: fetch(s.consumer, "m", 0), 9, first_group,
        E.STALE_MEMBER_EPOCH),
    Row("offset delete: unknown group", lambda s: offset_delete(s, NOWHERE), 0, top,
        E.GROUP_ID_NOT_FOUND),
    Row("offset delete: subscribed", lambda s: offset_delete(s, s.classic), 0, first_partition,
        E.GROUP_SUBSCRIBED_TO_TOPIC),
    Row("describe: unknown group", lambda s: DescribeGroupsRequest(groups=[NOWHERE]), 6,
        first_group, E.GROUP_ID_NOT_FOUND),
    Row("describe: a group of the other type",
        lambda s: ConsumerGroupDescribeRequest(
            group_ids=[s.classic], include_authorized_operations=False), 1, first_group,
        E.GROUP_ID_NOT_FOUND),
    Row("delete: unknown group", lambda s: DeleteGroupsRequest(groups_names=[NOWHERE]), 2,
        first_result, E.GROUP_ID_NOT_FOUND),
    Row("delete: group with members", lambda s: DeleteGroupsRequest(groups_names=[s.classic]), 2,
        first_result, E.NON_EMPTY_GROUP),
    # Transactions.
    Row("init: no timeout", lambda s: init(s.open_txn, 0), 5, top,
        E.INVALID_TRANSACTION_TIMEOUT),
    Row("init: timeout too long", lambda s: init(s.open_txn, 2**31 - 1), 5, top,
        E.INVALID_TRANSACTION_TIMEOUT),
    Row("init: no id", lambda s: init(""), 5, top, E.INVALID_REQUEST),
    Row("init: an older identity",
        lambda s: init(s.idle_txn, producer=(s.idle_id, s.idle_epoch - 1)), 5, top,
        E.PRODUCER_FENCED),
    Row("add: unknown id", lambda s: add(s, UNKNOWN, opened(s)), 3, first_added,
        E.INVALID_PRODUCER_ID_MAPPING),
    Row("add: another's producer id", lambda s: add(s, s.open_txn, (s.open_id + 99, 0)), 3,
        first_added, E.INVALID_PRODUCER_ID_MAPPING),
    Row("add: stale epoch", lambda s: add(s, s.open_txn, (s.open_id, s.open_epoch - 1)), 3,
        first_added, E.PRODUCER_FENCED),
    Row("add: no such partition", lambda s: add(s, s.open_txn, opened(s), 7), 3, first_added,
        E.UNKNOWN_TOPIC_OR_PARTITION),
    Row("add offsets: unknown id", lambda s: add_offsets(UNKNOWN, opened(s), s.classic), 4, top,
        E.INVALID_PRODUCER_ID_MAPPING),
    Row("add offsets: stale epoch",
        lambda s: add_offsets(s.open_txn, (s.open_id, s.open_epoch + 9), s.classic), 4, top,
        E.PRODUCER_FENCED),
    Row("produce: outside any transaction",
        lambda s: s.produce_request(s.idle_txn, *idle(s)), 11, first_batch,
        E.TRANSACTION_ABORTABLE),
    Row("produce: stale epoch",
        lambda s: s.produce_request(s.open_txn, s.open_id, s.open_epoch - 1), 12, first_batch,
        E.INVALID_PRODUCER_EPOCH),
    Row("produce: unknown id", lambda s: s.produce_request(UNKNOWN, *idle(s)), 12, first_batch,
        E.INVALID_PRODUCER_ID_MAPPING),
    Row("end: no transaction", lambda s: end(s.idle_txn, idle(s)), 4, top, E.INVALID_TXN_STATE),
    Row("end: unknown id", lambda s: end(UNKNOWN, opened(s)), 5, top,
        E.INVALID_PRODUCER_ID_MAPPING),
    Row("end: stale epoch", lambda s: end(s.open_txn, (s.open_id, s.open_epoch - 1)), 5, top,
        E.PRODUCER_FENCED),
    Row("txn commit: unknown member", lambda s: txn_commit(s, member_id=UNKNOWN), 4,
        first_partition, E.UNKNOWN_MEMBER_ID),
    Row("txn commit: stale generation", lambda s: txn_commit(s, generation_id=0), 4,
        first_partition, E.ILLEGAL_GENERATION),
    Row("txn commit: foreign instance", lambda s: txn_commit(s, group_instance_id=s.instance), 4,
        first_partition, E.FENCED_INSTANCE_ID),
    Row("txn commit: stale epoch of the producer",
        lambda s: txn_commit(s, producer_epoch=s.open_epoch + 9), 4, first_partition,
        E.INVALID_PRODUCER_EPOCH),
    Row("txn commit: unknown id", lambda s: txn_commit(s, transactional_id=UNKNOWN), 4,
        first_partition, E.INVALID_PRODUCER_ID_MAPPING),
    Row("txn commit: no such partition", lambda s: txn_commit(s, index=7), 4, first_partition,
        E.UNKNOWN_TOPIC_OR_PARTITION),
    Row("txn commit: oversize metadata", lambda s: txn_commit(s, metadata=LONG), 4,
        first_partition, E.OFFSET_METADATA_TOO_LARGE),
    Row("describe: unknown transactional id",
        lambda s: DescribeTransactionsRequest(transactional_ids=[UNKNOWN]), 0, first_txn,
        E.TRANSACTIONAL_ID_NOT_FOUND),
]
# fmt: on


@pytest.fixture
def stage(broker: Broker, topic: str) -> Iterator[Stage]:
    stage = Stage(broker.bootstrap, topic)
    stage.build()
    # The group's offsets are in the transaction, so that only the commit itself can be wrong.
    reply = stage.ask(add_offsets(stage.open_txn, opened(stage), stage.classic), 4)
    assert reply.error_code == 0
    yield stage
    stage.close()


def test_invalid_request_gets_the_kafka_error_and_changes_nothing(stage: Stage) -> None:
    before = stage.told()
    wrong = []
    for row in ROWS:
        code = row.code_in(stage.ask(row.request(stage), row.version))
        if code != row.code:
            wrong.append(f"{row.what}: {E(code).name} instead of {row.code.name}")
        after = stage.told()
        if after != before:
            changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
            wrong.append(f"{row.what} changed {changed}")
            before = after
    assert not wrong, "\n".join(wrong)


def test_valid_requests_change_the_compared_state(stage: Stage) -> None:
    """Shows that the comparison above can fail."""
    before = stage.told()
    stage.commit(stage.classic, stage.generation, stage.member, 77)
    after_commit = stage.told()
    assert after_commit != before
    assert stage.ask(end(stage.open_txn, opened(stage), committed=False), 4).error_code == 0
    assert stage.told() != after_commit


def test_expired_transactional_id_is_unknown(fresh_broker: FreshBroker, topic: str) -> None:
    process = fresh_broker(
        sets={
            "transactional.id.expiration.ms": 500,
            "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
            "group.initial.rebalance.delay.ms": 0,
        }
    )
    stage = Stage(process.bootstrap, topic)
    stage.build()
    deadline = 200
    while (
        stage.ask(DescribeTransactionsRequest(transactional_ids=[stage.idle_txn]))
        .transaction_states[0]
        .error_code
        != E.TRANSACTIONAL_ID_NOT_FOUND
    ):
        deadline -= 1
        assert deadline, "the id does not expire"
        stage.wait(0.05)
    before = stage.told()
    name, producer = stage.idle_txn, idle(stage)
    answers = {
        "add": first_added(stage.ask(add(stage, name, producer), 3)),
        "add offsets": top(stage.ask(add_offsets(name, producer, stage.classic), 4)),
        "end": top(stage.ask(end(name, producer), 5)),
        "produce": first_batch(stage.ask(stage.produce_request(name, *producer), 12)),
        "txn commit": first_partition(
            stage.ask(
                txn_commit(
                    stage,
                    transactional_id=name,
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                ),
                5,
            )
        ),
    }
    assert set(answers.values()) == {int(E.INVALID_PRODUCER_ID_MAPPING)}, answers
    assert stage.told() == before
    stage.close()
