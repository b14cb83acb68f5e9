"""Followers' fetch sessions: who is answered when, and what is let go of."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.data.replica_fetch_sessions import ReplicaSessions
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.replicating import Copier, append, led, offsets, replicate, rows


@run_with(on_node)
async def test_sent_records_are_not_sent_again_before_they_are_requested(node: Node) -> None:
    await replicate(node)
    append(node)
    copier = Copier(node)
    await copier.open(copier.part(0))
    append(node)
    assert rows(await copier.ask(max_wait_ms=100)) == [], "its disk is still at work"
    (row,) = rows(await copier.ask(copier.part(1)))
    assert offsets(row) == [1]


@run_with(on_node)
async def test_partition_no_longer_named_is_sent_again(node: Node) -> None:
    await replicate(node)
    append(node)
    copier = Copier(node)
    await copier.open(copier.part(0))
    for _ in range(2):
        assert rows(await copier.ask(max_wait_ms=100)) == []
    (row,) = rows(await copier.ask(max_wait_ms=100))
    assert offsets(row) == [0]


@run_with(on_node)
async def test_forgotten_partition_is_not_answered_and_not_watched(node: Node) -> None:
    await replicate(node, count=2)
    copier = Copier(node)
    await copier.open(copier.part(0), copier.part(0, 1))
    pending = await copier.send(forgotten=[0])
    append(node)
    append(node, index=1)
    (row,) = rows(await pending.reply())
    assert row.partition_index == 1
    assert not led(node)._append_watchers


@run_with(on_node)
async def test_next_request_completes_the_parked_one(node: Node) -> None:
    await replicate(node, count=2)
    copier = Copier(node)
    await copier.open(copier.part(0))
    parked = await copier.send()
    following = await copier.send(copier.part(0, 1))
    assert parked.is_answered
    assert rows(await parked.reply()) == []
    append(node, index=1)
    (row,) = rows(await following.reply())
    assert row.partition_index == 1


@run_with(on_node)
async def test_new_session_replaces_the_previous_one(node: Node) -> None:
    await replicate(node)
    copier = Copier(node)
    await copier.open(copier.part(0))
    first = copier.session_id
    parked = await copier.send()
    await copier.open(copier.part(0))
    assert parked.is_answered
    assert copier.session_id != first
    assert len(node.ctx.fetch.replicas.sessions) == 1
    assert len(led(node)._append_watchers) == 1
    copier.session_id, copier.session_epoch = first, 2
    response = await copier.ask()
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_requests_are_counted() -> None:
    sessions = ReplicaSessions(first_id=7)
    session = sessions.open(2)
    assert sessions.resume(2, 7, 1) is session
    for node_id, session_id, epoch, code in (
        (2, 7, 1, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (2, 8, 2, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (3, 7, 2, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ):
        with pytest.raises(Refused) as refused:
            sessions.resume(node_id, session_id, epoch)
        assert refused.value.code is code
    assert sessions.resume(2, 7, 2) is session


@run_with(on_node)
async def test_idle_partitions_cost_nothing(node: Node) -> None:
    await replicate(node, count=5)
    copier = Copier(node)
    await copier.open(*(copier.part(0, index) for index in range(5)))
    session = node.ctx.fetch.replicas.sessions.resume(2, copier.session_id, 1)
    assert len(session.cursors) == 5
    assert not session.ready
    assert not session.stale
    append(node, index=3)
    assert [cursor.index for cursor in session.ready] == [3]


@run_with(on_node)
async def test_followers_are_independent(node: Node) -> None:
    await replicate(node)
    two, three = Copier(node, 2), Copier(node, 3)
    await two.open(two.part(0))
    await three.open(three.part(0))
    first, second = await two.send(), await three.send()
    append(node)
    await asyncio.sleep(0)
    assert offsets(rows(await first.reply())[0]) == [0]
    assert offsets(rows(await second.reply())[0]) == [0]
