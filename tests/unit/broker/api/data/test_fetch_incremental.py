"""Fetch: what an answer within a session leaves out."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ports import Put
from penstock.broker.api.data.fetch import fetch
from penstock.cluster.metadata import store_keys
from penstock.wire.messages.fetch import (
    FetchForgottenTopic,
    FetchResponse,
)
from tests.run_with import run_with
from tests.unit.broker.api.fetching import VERSION, ask, fill, offsets, partition_of, request, rows
from tests.unit.broker.api.harness import Client, Node, on_node

# -- sessions ---------------------------------------------------------------------------------


async def open_session(node: Node, *parts: tuple[str, int, int]) -> FetchResponse:
    response: FetchResponse = await ask(node, *parts, session_epoch=0)
    assert response.session_id > 0
    return response


def names(response: FetchResponse) -> list[tuple[str, int]]:
    return [
        (topic.topic, row.partition_index)
        for topic in response.responses
        for row in topic.partitions
    ]


@run_with(on_node)
async def test_incremental_response_has_only_changes(node: Node) -> None:
    await node.create("t", 3)
    full = await open_session(node, ("t", 0, 0), ("t", 1, 0), ("t", 2, 0))
    assert names(full) == [("t", 0), ("t", 1), ("t", 2)]
    session = full.session_id
    nothing = await ask(node, session_id=session, session_epoch=1)
    assert names(nothing) == []
    await node.produce("t", 1, index=1)
    news = await ask(node, session_id=session, session_epoch=2)
    assert names(news) == [("t", 1)]
    assert offsets(rows(news)[0]) == [0]
    # The consumer moves on; then only the start of another log changes.
    assert names(await ask(node, ("t", 1, 1), session_id=session, session_epoch=3)) == []
    await node.produce("t", 2, index=2)
    await ask(node, ("t", 2, 2), session_id=session, session_epoch=4)
    await partition_of(node, "t", 2).delete_before(1)
    moved = await ask(node, session_id=session, session_epoch=5)
    assert names(moved) == [("t", 2)]
    assert rows(moved)[0].log_start_offset == 1


@run_with(on_node)
async def test_error_and_its_end_are_changes(node: Node) -> None:
    await node.create("t", 1)
    session = (await open_session(node, ("t", 0, 0), ("late", 0, 0))).session_id
    again = await ask(node, session_id=session, session_epoch=1)
    assert names(again) == [("late", 0)]
    await node.create("late", 1)
    better = await ask(node, session_id=session, session_epoch=2)
    assert names(better) == [("late", 0)]
    assert rows(better)[0].error_code == 0
    assert names(await ask(node, session_id=session, session_epoch=3)) == []


@run_with(on_node)
async def test_partitions_are_added_and_forgotten(node: Node) -> None:
    await node.create("t", 2)
    await node.produce("t", 1, index=0)
    session = (await open_session(node, ("t", 0, 0))).session_id
    added = await ask(node, ("t", 1, 0), session_id=session, session_epoch=1)
    assert names(added) == [("t", 0), ("t", 1)]
    forgotten = await ask(
        node,
        session_id=session,
        session_epoch=2,
        forgotten_topics_data=[FetchForgottenTopic(topic="t", partitions=[0])],
    )
    assert names(forgotten) == []


@run_with(on_node)
async def test_session_without_partitions_ends(node: Node) -> None:
    await node.create("t", 1)
    session = (await open_session(node, ("t", 0, 0))).session_id
    last = await ask(
        node,
        session_id=session,
        session_epoch=1,
        forgotten_topics_data=[FetchForgottenTopic(topic="t", partitions=[0])],
    )
    assert (last.error_code, last.session_id, names(last)) == (0, 0, [])
    assert len(node.ctx.fetch.fetch_sessions) == 0


@run_with(on_node)
async def test_partition_with_data_goes_last_next_time(node: Node) -> None:
    await node.create("t", 2)
    for index in range(2):
        await fill(node, [5000] * 3, index=index)
    response = await ask(node, ("t", 0, 0), ("t", 1, 0), session_epoch=0, max_bytes=1)
    assert [bool(row.records) for row in rows(response)] == [True, False]
    following = await ask(
        node, ("t", 0, 1), session_id=response.session_id, session_epoch=1, max_bytes=1
    )
    assert names(following) == [("t", 1)]


@pytest.mark.parametrize(
    ("session_shift", "epoch", "code"),
    [
        (1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
@run_with(on_node)
async def test_session_out_of_sequence_is_refused_as_a_whole(
    node: Node, *, session_shift: int, epoch: int, code: ErrorCode
) -> None:
    await node.create("t", 1)
    session = (await open_session(node, ("t", 0, 0))).session_id + session_shift
    response = await ask(node, session_id=session, session_epoch=epoch)
    assert (response.error_code, response.session_id, names(response)) == (code, 0, [])


@run_with(on_node)
async def test_full_fetch_closes_the_session_it_names(node: Node) -> None:
    await node.create("t", 1)
    first = (await open_session(node, ("t", 0, 0))).session_id
    again = await ask(node, ("t", 0, 0), session_id=first, session_epoch=0)
    assert again.session_id not in (0, first)
    closing = await ask(node, ("t", 0, 0), session_id=again.session_id, session_epoch=-1)
    assert closing.session_id == 0
    assert len(node.ctx.fetch.fetch_sessions) == 0


@run_with(on_node)
async def test_partition_forgotten_during_a_cold_read_does_not_end_the_session(
    node: Node,
) -> None:
    await node.create("t", 1)
    await node.produce("t", 1)
    session = (await open_session(node, ("t", 0, 1))).session_id
    node.disk.cold_ratio = 1.0
    slow = asyncio.ensure_future(ask(node, ("t", 0, 0), session_id=session, session_epoch=1))
    await asyncio.sleep(0)
    await ask(
        node,
        session_id=session,
        session_epoch=2,
        forgotten_topics_data=[FetchForgottenTopic(topic="t", partitions=[0])],
    )
    assert offsets(rows(await slow)[0]) == [0]


# -- configs ----------------------------------------------------------------------------------


@run_with(on_node)
async def test_moved_leader_is_distinguished_from_an_unknown_topic(node: Node) -> None:
    record = store_keys.PartitionRecord((9,), 9, (9,))
    topic = store_keys.TopicRecord("AAAAAAAAAAAAAAAAAAAAAQ", (record,))
    revision = await node.store.commit(
        [], [Put(store_keys.topic_key("far"), store_keys.encode(topic))]
    )
    assert revision is not None
    await node.ctx.reached(revision)
    far, gone = rows(await ask(node, ("far", 0, 0), ("gone", 0, 0)))
    assert far.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@run_with(on_node)
async def test_session_of_another_principal_cannot_be_used(node: Node) -> None:
    await node.create("secret", 1)
    mine = await open_session(node, ("secret", 0, 0))
    eve = Client()
    eve.principal = "User:eve"
    for epoch in (1, 0, -1):
        guess = request([], session_id=mine.session_id, session_epoch=epoch)
        pending, answer = node.begin(fetch, VERSION, guess, eve.again())
        told = answer if answer is not None else await pending.reply()
        assert names(told) == []
    own = await ask(node, session_id=mine.session_id, session_epoch=1)
    assert own.error_code == ErrorCode.NONE, "she ended it"
