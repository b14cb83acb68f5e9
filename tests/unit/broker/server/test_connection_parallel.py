"""Requests side by side on one connection: verdicts do not wait behind a fetch that waits."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.base.ids import TopicId
from penstock.client.connection import Connection
from penstock.wire.messages.share import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker

ACCEPT, RELEASE = 1, 2


class Session:
    """A share session by hand: requests are sent at once, replies awaited later."""

    def __init__(self, connection: Connection, topic_id: TopicId) -> None:
        self.connection = connection
        self.topic_id = topic_id
        self.epoch = 0

    def fetch(self, wait_ms: int = 60_000) -> "asyncio.Future[ShareFetchResponse]":
        row = ShareFetchPartition(partition_index=0, acknowledgement_batches=[])
        request = ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=self.epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=10,
            batch_size=10,
            topics=[ShareFetchTopic(topic_id=self.topic_id, partitions=[row])],
            forgotten_topics_data=[],
        )
        self.epoch += 1
        return self.connection.send(request, ShareFetchResponse, timeout_ms=120_000)

    def say(self, offset: int, kind: int) -> "asyncio.Future[ShareAcknowledgeResponse]":
        batch = AcknowledgementBatch(
            first_offset=offset, last_offset=offset, acknowledge_types=[kind], delay_ms=0
        )
        row = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=self.epoch,
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[row])],
        )
        self.epoch += 1
        return self.connection.send(request, ShareAcknowledgeResponse, timeout_ms=120_000)


def taken(answer: ShareFetchResponse) -> list[tuple[int, int]]:
    assert answer.error_code == 0
    return [
        (run.first_offset, run.delivery_count)
        for topic in answer.responses
        for row in topic.partitions
        for run in row.acquired_records
    ]


def in_session(test: Callable[[Sim, Session], Awaitable[None]]) -> None:
    """One record, held by a member that waits for more."""

    async def body(sim: Sim) -> None:
        async with sim.client() as client:
            await client.create_topic("t", 1)
            await client.configure_group("g", {"share.auto.offset.reset": "earliest"})
            await client.publish("t", b"x")
            info = await client.cluster.topic("t")
            connection = await client.cluster.open_connection(1)
            session = Session(connection, info.topic_id)
            assert taken(await session.fetch(5_000)) == [(0, 1)]
            await test(sim, session)
            connection.close()

    on_broker(body)


@run_with(in_session)
async def test_waiting_fetch_is_answered_when_a_later_acknowledgement_is_stored(
    sim: Sim, session: Session
) -> None:
    waiting = session.fetch()
    await asyncio.sleep(2)
    assert not waiting.done()
    before = sim.loop.time()
    answer = await session.say(0, ACCEPT)
    assert answer.error_code == 0
    assert sim.loop.time() - before < 1
    assert taken(await waiting) == []


@run_with(in_session)
async def test_waiting_fetch_gets_records_released_by_a_later_acknowledgement(
    sim: Sim, session: Session
) -> None:
    waiting = session.fetch()
    await asyncio.sleep(2)
    assert (await session.say(0, RELEASE)).error_code == 0
    assert taken(await waiting) == [(0, 2)]


@run_with(in_session)
async def test_requests_that_arrive_together_apply_in_order(sim: Sim, session: Session) -> None:
    released, fetched, accepted = await asyncio.gather(
        session.say(0, RELEASE), session.fetch(), session.say(0, ACCEPT)
    )
    assert released.error_code == accepted.error_code == 0
    assert taken(fetched) == [(0, 2)]


@run_with(in_session)
async def test_tasks_of_a_connection_end_with_it(sim: Sim, session: Session) -> None:
    waiting = session.fetch()
    await asyncio.sleep(2)
    session.connection.close()
    await asyncio.gather(waiting, return_exceptions=True)
    async with sim.client() as client:
        (message,) = await client.poll("t", "g", wait=1)
        assert message.attempt == 2
        await message.ack()
