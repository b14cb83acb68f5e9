"""Fetch from followers: what they are given, what their asking proves, and who is turned away."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.data.fetch import fetch
from penstock.broker.api.data.replica_fetch import STALE_SECONDS
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.replication.throttle import Throttle
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.replicating import (
    EPOCH,
    VERSION,
    Copier,
    append,
    led,
    offsets,
    replicate,
    rows,
    synced,
)


@run_with(on_node)
async def test_follower_reads_to_the_log_end_including_unsynced_records(node: Node) -> None:
    await replicate(node)
    append(node)
    assert led(node).log.durable_offset == 0
    copier = Copier(node)
    (row,) = rows(await copier.open(copier.part(0)))
    assert offsets(row) == [0]
    assert (row.error_code, row.high_watermark) == (0, 0)


@run_with(on_node)
async def test_fetch_offset_proves_that_earlier_records_are_synced(node: Node) -> None:
    await replicate(node)
    append(node)
    await synced(node)
    two, three = Copier(node, 2), Copier(node, 3)
    await two.open(two.part(0))
    await three.open(three.part(1))
    assert led(node).high_watermark == 0
    await two.send(two.part(1))
    assert led(node).high_watermark == 1


@run_with(on_node)
async def test_parked_fetch_is_woken_once_per_event_loop_turn(node: Node) -> None:
    await replicate(node, count=2)
    copier = Copier(node)
    await copier.open(copier.part(0), copier.part(0, 1))
    pending = await copier.send()
    await asyncio.sleep(0.1)
    assert not pending.is_answered
    append(node)
    append(node, index=1)
    append(node)
    assert not pending.is_answered, "after what is going on, not within"
    first, second = rows(await pending.reply())
    assert (first.partition_index, offsets(first)) == (0, [0, 1])
    assert (second.partition_index, offsets(second)) == (1, [0])


@run_with(on_node)
async def test_parked_fetch_times_out_empty(node: Node) -> None:
    await replicate(node)
    copier = Copier(node)
    await copier.open(copier.part(0))
    started = asyncio.get_running_loop().time()
    assert rows(await copier.ask(max_wait_ms=300)) == []
    assert 0.3 <= asyncio.get_running_loop().time() - started < 0.4


@run_with(on_node)
async def test_high_watermark_updates_wait_briefly_to_be_combined(node: Node) -> None:
    await replicate(node)
    append(node)
    await synced(node)
    two, three = Copier(node, 2), Copier(node, 3)
    await two.open(two.part(1, high_watermark=0))
    pending = await two.send()
    started = asyncio.get_running_loop().time()
    await three.open(three.part(1, high_watermark=0))
    (row,) = rows(await pending.reply())
    assert row.high_watermark == 1
    assert not row.records
    assert asyncio.get_running_loop().time() - started <= STALE_SECONDS + 0.01
    assert rows(await two.ask(max_wait_ms=200)) == [], "told once"


@run_with(on_node)
async def test_follower_with_an_old_high_watermark_gets_the_new_one(node: Node) -> None:
    await replicate(node, isr=(1,), min_insync_replicas="1")
    append(node)
    await synced(node)
    copier = Copier(node)
    await copier.open()
    started = asyncio.get_running_loop().time()
    (row,) = rows(await copier.ask(copier.part(1, high_watermark=0)))
    assert row.high_watermark == 1
    assert asyncio.get_running_loop().time() - started <= STALE_SECONDS + 0.01


@run_with(on_node)
async def test_follower_that_sends_no_high_watermark_is_not_woken(node: Node) -> None:
    await replicate(node, isr=(1,), min_insync_replicas="1")
    append(node)
    await synced(node)
    copier = Copier(node)
    await copier.open(copier.part(1))
    assert rows(await copier.ask(max_wait_ms=200)) == []


@run_with(on_node)
async def test_diverging_log_is_answered_with_its_epoch_and_not_counted(node: Node) -> None:
    await replicate(node, epoch=EPOCH)
    append(node)
    await synced(node)
    await replicate(node, epoch=EPOCH + 2, partition_epoch=11)
    append(node)
    await synced(node)
    copier = Copier(node)
    part = copier.part(5, current_leader_epoch=EPOCH + 2, last_fetched_epoch=EPOCH + 1)
    (row,) = rows(await copier.open(part))
    assert row.diverging_epoch is not None
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (EPOCH, 1)
    assert not row.records
    leader_state = led(node).leader_state
    assert leader_state is not None
    assert leader_state.copies[2].end_offset == -1


@run_with(on_node)
async def test_epoch_unknown_to_a_new_leader_is_answered_with_its_end(node: Node) -> None:
    await replicate(node, epoch=1, partition_epoch=9)
    append(node)
    await replicate(node, epoch=EPOCH)  # Another led in 2; nothing is written in 3 yet.
    copier = Copier(node)
    (row,) = rows(await copier.open(copier.part(4, last_fetched_epoch=2)))
    assert row.diverging_epoch is not None
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (1, 1)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
@run_with(on_node)
async def test_follower_with_another_leader_epoch_is_fenced(
    node: Node, *, epoch: int, code: ErrorCode
) -> None:
    await replicate(node)
    copier = Copier(node)
    (row,) = rows(await copier.open(copier.part(0, current_leader_epoch=epoch)))
    assert row.error_code == code


@run_with(on_node)
async def test_fetch_of_an_earlier_registration_is_refused(node: Node) -> None:
    await replicate(node)
    copier = Copier(node)
    response = await copier.open(copier.part(0), epoch=101)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    response = await copier.open(copier.part(0), epoch=103)
    assert response.error_code == 0, "a life that we have not heard of yet"


@run_with(on_node)
async def test_node_without_a_replica_is_refused(node: Node) -> None:
    await replicate(node)
    copier = Copier(node, 9)
    (row,) = rows(await copier.open(copier.part(0)))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@run_with(on_node)
async def test_client_claiming_to_be_a_replica_is_refused(node: Node) -> None:
    """Else it could make the leader believe that a copy is further than it is (CVE-2018-1288)."""

    await replicate(node)
    node.rights.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    copier = Copier(node, 2)
    answer = await copier.open(copier.part(0))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@run_with(on_node)
async def test_partition_led_elsewhere_is_refused_with_its_leader(node: Node) -> None:
    await replicate(node, leader=2)
    copier = Copier(node, 3)
    response = await copier.open(copier.part(0))
    (row,) = rows(response)
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader is not None
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, EPOCH)
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, endpoint.host) == (2, "host2")


@run_with(on_node)
async def test_offset_outside_the_log_is_out_of_range(node: Node) -> None:
    await replicate(node)
    copier = Copier(node)
    (row,) = rows(await copier.open(copier.part(7)))
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@run_with(on_node)
async def test_end_of_a_role_answers_a_parked_fetch(node: Node) -> None:
    await replicate(node)
    copier = Copier(node)
    await copier.open(copier.part(0))
    pending = await copier.send()
    partition = led(node)
    await replicate(node, leader=3, epoch=EPOCH + 1, partition_epoch=11)
    (row,) = rows(await pending.reply())
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not partition._append_watchers
    assert not partition._watchers


@run_with(on_node)
async def test_deleted_topic_is_no_longer_watched(node: Node) -> None:
    await replicate(node)
    copier = Copier(node)
    await copier.open(copier.part(0))
    pending = await copier.send()
    partition = led(node)
    await node.delete("t")
    (row,) = rows(await pending.reply())
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not partition._append_watchers


@run_with(on_node)
async def test_moved_start_offset_is_reported(node: Node) -> None:
    await replicate(node, isr=(1,), min_insync_replicas="1")
    append(node)
    await synced(node)
    copier = Copier(node)
    await copier.open(copier.part(1))
    pending = await copier.send()
    await led(node).delete_before(1)
    (row,) = rows(await pending.reply())
    assert row.log_start_offset == 1


@run_with(on_node)
async def test_response_bytes_are_shared_in_turns(node: Node) -> None:
    await replicate(node, count=3)
    for index in range(3):
        append(node, 600, index=index)
    copier = Copier(node)
    parts = [copier.part(0, index) for index in range(3)]
    seen = [row.partition_index for row in rows(await copier.open(*parts, max_bytes=1000))]
    assert seen == [0], "a second batch does not fit"
    for _ in range(2):
        answer = rows(await copier.ask(max_bytes=1000))
        seen += [row.partition_index for row in answer]
    assert seen == [0, 1, 2]


@run_with(on_node)
async def test_first_batch_is_sent_whatever_its_size(node: Node) -> None:
    await replicate(node)
    append(node, 5000)
    copier = Copier(node)
    (row,) = rows(await copier.open(copier.part(0, partition_max_bytes=100), max_bytes=100))
    assert offsets(row) == [0]


@run_with(on_node)
async def test_fetch_without_a_session_keeps_no_state(node: Node) -> None:
    await replicate(node)
    append(node)
    copier = Copier(node)
    copier.session_epoch = -1
    response = await node.ask(fetch, VERSION, copier.request(copier.part(0)))
    assert response.session_id == 0
    assert offsets(rows(response)[0]) == [0]
    assert not led(node)._append_watchers
    assert len(node.ctx.fetch.replicas.sessions) == 0


@run_with(on_node)
async def test_disconnected_follower_is_not_answered(node: Node) -> None:
    await replicate(node)
    copier = Copier(node)
    await copier.open(copier.part(0))
    pending = await copier.send()
    pending.call.abandon()
    append(node)
    await asyncio.sleep(1)
    assert not pending.is_answered


@run_with(on_node, configs={"leader.replication.throttled.rate": "1000"})
async def test_replication_throttle_delays_replicas_out_of_sync(node: Node) -> None:
    node.ctx.fetch.replicas.throttle = Throttle("leader", 1, node.configs, node.ctx.watcher)
    await replicate(node, isr=(1, 3), leader_replication_throttled_replicas="*")
    for _ in range(3):
        append(node, 1000)
    two, three = Copier(node, 2), Copier(node, 3)
    first = await two.open(two.part(0, partition_max_bytes=1100))
    assert offsets(rows(first)[0]) == [0]
    started = asyncio.get_running_loop().time()
    (row,) = rows(await two.ask(two.part(1, partition_max_bytes=1100), max_wait_ms=5000))
    assert offsets(row) == [1]
    assert asyncio.get_running_loop().time() - started > 0.05
    (row,) = rows(await three.open(three.part(0)))
    assert offsets(row) == [0, 1, 2], "a replica in sync is not held back"


@run_with(on_node)
async def test_version_without_a_replica_epoch_is_refused(node: Node) -> None:
    await replicate(node)
    copier = Copier(node)
    request = copier.request(copier.part(0))
    request.replica_state, request.replica_id = None, copier.id
    request.topics[0].topic = "t"
    response = await node.ask(fetch, 12, request)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


@run_with(on_node)
async def test_follower_rejoins_over_an_idle_partition(node: Node) -> None:
    """Its fetch may have overtaken the news of its leaving: what it said then is asked again."""

    await replicate(node)
    copier = Copier(node)
    await copier.open(copier.part(0))
    await replicate(node, isr=(1, 3), partition_epoch=11)
    due: list[int] = []
    node.ctx.partitions.isr_due = lambda partition: due.append(partition.index)
    leader_state = led(node).leader_state
    assert leader_state is not None
    assert not leader_state.may_join(2, 0)
    # A request that names nothing says that all is as it was.
    await copier.send()
    assert leader_state.may_join(2, 0)
    assert due == [0]
