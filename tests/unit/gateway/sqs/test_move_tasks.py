"""Move tasks: background redrive of dead-letter queues."""

import asyncio
import json
from typing import Any

import pytest

from penstock.base.errors import Refused
from penstock.base.ports import Put
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.redrive import Redriver
from penstock.client.producer.transactional import TransactionalWriter
from penstock.cluster.configs import config_changes
from penstock.cluster.configs.config_changes import Alteration, Op
from penstock.cluster.configs.effective_configs import Scope
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import MoveRecord
from penstock.coordinator.queues.policy import DEAD_LETTERS
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.move_tasks import EACH_MAX, LOCK_MS, MoveTasks
from penstock.gateway.core.permissions import Principal
from penstock.security.acl_types import ANONYMOUS
from tests.run_with import run_with
from tests.unit.gateway.sqs.sdk import Sdk, failure, with_served_sdk

WHO = Principal("User:ann")


async def with_dead_letters(sdk: Sdk, count: int) -> tuple[str, str, str]:
    """Creates a queue and its dead-letter queue with `count` messages; returns both and the ARN."""
    dead = await sdk.create("dead")
    arn = await sdk.arn(dead)
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = await sdk.create(RedrivePolicy=policy)
    await sdk.send(url, *(f"m{n}" for n in range(count)))
    while (await sdk.attributes(url, "ApproximateNumberOfMessages"))[
        "ApproximateNumberOfMessages"
    ] != "0":
        await sdk.receive(url, VisibilityTimeout=0)
    for _ in range(100):
        if (await sdk.attributes(dead))["ApproximateNumberOfMessages"] == str(count):
            return url, dead, arn
        await asyncio.sleep(0.1)
    raise AssertionError("the letters did not come")


async def task(sdk: Sdk, arn: str) -> dict[str, Any]:
    (row,) = (await sdk("ListMessageMoveTasks", SourceArn=arn))["Results"]
    found: dict[str, Any] = row
    return found


async def ended(sdk: Sdk, arn: str) -> dict[str, Any]:
    for _ in range(1_500):
        row = await task(sdk, arn)
        if row["Status"] not in ("RUNNING", "CANCELLING"):
            return row
        await asyncio.sleep(0.1)
    raise AssertionError("the task did not end")


@run_with(with_served_sdk)
async def test_messages_are_moved_to_their_source_queue(sdk: Sdk) -> None:
    url, dead, arn = await with_dead_letters(sdk, 25)
    await sdk("StartMessageMoveTask", SourceArn=arn)
    row = await ended(sdk, arn)
    assert row["Status"] == "COMPLETED"
    assert row["ApproximateNumberOfMessagesMoved"] == 25
    account = await sdk.moves.gateway.queues.one(WHO, "dead", DEAD_LETTERS)
    assert account.unfinished == 0
    assert await sdk.bodies(dead) == []
    seen: list[str] = []
    while got := await sdk.receive(url):
        seen += [message["Body"] for message in got]
        assert not any("dlq" in name for m in got for name in m.get("MessageAttributes", {}))
        await sdk.delete(url, *got)
    assert sorted(seen) == sorted(f"m{n}" for n in range(25))


@run_with(with_served_sdk)
async def test_messages_are_moved_to_a_destination_at_the_given_rate(sdk: Sdk) -> None:
    _, dead, arn = await with_dead_letters(sdk, 10)
    other = await sdk.create("other")
    loop = asyncio.get_running_loop()
    start = loop.time()
    await sdk(
        "StartMessageMoveTask",
        SourceArn=arn,
        DestinationArn=await sdk.arn(other),
        MaxNumberOfMessagesPerSecond=2,
    )
    again = await failure(sdk("StartMessageMoveTask", SourceArn=arn))
    assert again.name == "UnsupportedOperation"
    assert (await ended(sdk, arn))["Status"] == "COMPLETED"
    assert 4 <= loop.time() - start <= 6
    assert len(await sdk.receive(other)) == 10
    assert await sdk.bodies(dead) == []


@run_with(with_served_sdk)
async def test_cancelled_task_loses_no_messages(sdk: Sdk) -> None:
    url, dead, arn = await with_dead_letters(sdk, 10)
    started = await sdk("StartMessageMoveTask", SourceArn=arn, MaxNumberOfMessagesPerSecond=1)
    handle = started["TaskHandle"]
    await asyncio.sleep(3.5)
    assert (await task(sdk, arn))["TaskHandle"] == handle
    await sdk("CancelMessageMoveTask", TaskHandle=handle)
    row = await ended(sdk, arn)
    assert row["Status"] == "CANCELLED"
    moved = row["ApproximateNumberOfMessagesMoved"]
    assert 3 <= moved <= 5
    assert len(await sdk.receive(url)) == moved
    assert len(await sdk.receive(dead)) == 10 - moved
    late = await failure(sdk("CancelMessageMoveTask", TaskHandle=handle))
    assert (late.name, late.status) == ("ResourceNotFoundException", 404)


@run_with(with_served_sdk)
async def test_message_without_source_fails_the_task_and_stays(sdk: Sdk) -> None:
    _, dead, arn = await with_dead_letters(sdk, 0)
    await sdk.send(dead, "sent by hand")
    await sdk("StartMessageMoveTask", SourceArn=arn)
    row = await ended(sdk, arn)
    assert (row["Status"], row["FailureReason"]) == (
        "FAILED",
        "CouldNotDetermineMessageSource",
    )
    assert await sdk.bodies(dead) == ["sent by hand"]


@run_with(with_served_sdk)
async def test_invalid_tasks_are_refused(sdk: Sdk) -> None:
    url, _, arn = await with_dead_letters(sdk, 0)
    for values in (
        {"SourceArn": await sdk.arn(url)},
        {"SourceArn": "dead"},
        {"SourceArn": arn, "DestinationArn": arn},
        {"SourceArn": arn, "MaxNumberOfMessagesPerSecond": 501},
    ):
        failed = await failure(sdk("StartMessageMoveTask", **values))
        assert failed.name == "InvalidParameterValue"
    missing = await failure(sdk("StartMessageMoveTask", SourceArn=arn + "x"))
    assert missing.name == "QueueDoesNotExist"
    unknown = await failure(sdk("CancelMessageMoveTask", TaskHandle="x"))
    assert unknown.name == "ResourceNotFoundException"


@run_with(with_served_sdk)
async def test_tasks_are_resumed_after_a_restart(sdk: Sdk) -> None:
    url, _, arn = await with_dead_letters(sdk, 5)
    record = MoveRecord(source="dead", started_ms=1, owner=1, principal=WHO.name, to_move=5)
    await sdk.node.store.commit([], [Put(store_keys.MOVES + "abc", store_keys.encode(record))])
    again = asyncio.ensure_future(MoveTasks(Gateway(sdk.node.ctx)).run())
    assert (await ended(sdk, arn))["ApproximateNumberOfMessagesMoved"] == 5
    assert len(await sdk.receive(url)) == 5
    again.cancel()


@pytest.mark.parametrize(
    ("owner", "name", "runs_first"),
    [
        (Redriver, "settle", False),
        (TransactionalWriter, "write", False),
        (TransactionalWriter, "write", True),
        (MoveTasks, "_settle", False),
        (MoveTasks, "_settle", True),
    ],
    ids=["received", "before commit", "committed", "redriven", "finished"],
)
@run_with(with_served_sdk)
async def test_messages_move_exactly_once_when_the_node_dies(
    sdk: Sdk, *, owner: type, name: str, runs_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task dies at a given point, and a new one resumes as after a restart."""

    url, dead, arn = await with_dead_letters(sdk, 6)
    record = MoveRecord(source="dead", started_ms=1, owner=1, principal=WHO.name, to_move=6)
    await sdk.node.store.commit([], [Put(store_keys.MOVES + "abc", store_keys.encode(record))])
    work, is_there = getattr(owner, name), asyncio.Event()

    async def dies(*args: Any, **named: Any) -> None:
        if runs_first:
            await work(*args, **named)
        is_there.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, dies)
        dying = asyncio.ensure_future(MoveTasks(Gateway(sdk.node.ctx)).run())
        await is_there.wait()
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
    again = asyncio.ensure_future(MoveTasks(Gateway(sdk.node.ctx)).run())
    row = await ended(sdk, arn)
    assert (row["Status"], row.get("FailureReason")) == ("COMPLETED", None)
    assert await moved(sdk, url) == [f"m{n}" for n in range(6)]
    await asyncio.sleep(LOCK_MS / 1000 + 1)
    assert await sdk.bodies(dead) == []
    again.cancel()


async def moved(sdk: Sdk, url: str) -> list[str]:
    """Returns the bodies of all messages of a queue, including duplicates."""
    seen: list[str] = []
    while got := await sdk.receive(url, WaitTimeSeconds=1):
        seen += [message["Body"] for message in got]
        await sdk.delete(url, *got)
    return sorted(seen)


@run_with(with_served_sdk)
async def test_message_redriven_by_other_means_is_not_moved_again(sdk: Sdk) -> None:
    url, dead, arn = await with_dead_letters(sdk, 4)
    letters = sdk.moves.gateway.dead_letters
    report = await letters.redrive(WHO, "dead", DeadLetterFilter(ids=frozenset({(0, 0), (0, 2)})))
    assert report.settled == 2
    await sdk("StartMessageMoveTask", SourceArn=arn)
    row = await ended(sdk, arn)
    assert (row["Status"], row["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 4)
    assert await moved(sdk, url) == [f"m{n}" for n in range(4)]
    assert await sdk.bodies(dead) == []


@run_with(with_served_sdk)
async def test_message_refused_by_its_target_stays_and_fails_the_task(sdk: Sdk) -> None:
    url, dead, arn = await with_dead_letters(sdk, 1)
    small = await sdk.create("small")
    await sdk.node.ctx.reached(
        await config_changes.alter_topic(
            sdk.node.ctx.admin.store,
            "small",
            config_changes.altering(Scope.TOPIC, [Alteration("max.message.bytes", Op.SET, "70")]),
        )
    )
    await sdk("StartMessageMoveTask", SourceArn=arn, DestinationArn=await sdk.arn(small))
    row = await ended(sdk, arn)
    assert row["Status"] == "FAILED"
    assert "max.message.bytes" in row["FailureReason"]
    assert await sdk.bodies(dead) == ["m0"]
    assert await sdk.bodies(small) == await sdk.bodies(url) == []


@run_with(with_served_sdk)
async def test_redriven_messages_show_no_internal_headers(sdk: Sdk) -> None:
    url, _, arn = await with_dead_letters(sdk, 1)
    await sdk("StartMessageMoveTask", SourceArn=arn)
    await ended(sdk, arn)
    (message,) = await sdk.receive(url)
    assert "MessageAttributes" not in message


@run_with(with_served_sdk)
async def test_task_of_an_absent_node_is_shown_as_failed(sdk: Sdk) -> None:
    _, _, arn = await with_dead_letters(sdk, 0)
    record = MoveRecord(source="dead", started_ms=1, owner=7, principal=WHO.name)
    await sdk.node.store.commit([], [Put(store_keys.MOVES + "abc", store_keys.encode(record))])
    assert (await task(sdk, arn))["Status"] == "FAILED"
    await sdk("CancelMessageMoveTask", TaskHandle="abc")
    assert (await task(sdk, arn))["Status"] == "CANCELLED"


@run_with(with_served_sdk)
async def test_deduplication_id_does_not_block_a_redriven_message(sdk: Sdk) -> None:
    await sdk.create("dead.fifo")
    dead_arn = "arn:aws:sqs:us-east-1:000000000000:dead.fifo"
    policy = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": 1})
    url = await sdk.create("jobs.fifo", RedrivePolicy=policy)
    await sdk.send(url, "a", MessageGroupId="g", MessageDeduplicationId="d")
    await sdk.receive(url, VisibilityTimeout=0)
    for _ in range(100):
        if (await sdk.attributes(sdk_url("dead.fifo")))["ApproximateNumberOfMessages"] == "1":
            break
        await asyncio.sleep(0.1)
    await sdk("StartMessageMoveTask", SourceArn=dead_arn)
    await ended(sdk, dead_arn)
    (message,) = await sdk.receive(url)
    assert (message["Body"], message["Attributes"]["MessageGroupId"]) == ("a", "g")


def sdk_url(name: str) -> str:
    return f"http://broker:8080/000000000000/{name}"


@run_with(with_served_sdk)
async def test_active_tasks_are_limited_per_user(sdk: Sdk) -> None:
    moves = MoveTasks(Gateway(sdk.node.ctx))  # It does not run the tasks.

    def begun(number: int, principal: str, host: str = "*") -> MoveRecord:
        return MoveRecord(f"q{number}", number, 1, principal, host)

    for number in range(EACH_MAX):
        await moves.add(begun(number, "User:ann"))
    for number in range(EACH_MAX):
        await moves.add(begun(100 + number, ANONYMOUS, "10.0.0.1"))
    for again in (begun(200, "User:ann"), begun(201, ANONYMOUS, "10.0.0.1")):
        with pytest.raises(Refused, match="16 per user"):
            await moves.add(again)
    await moves.add(begun(202, ANONYMOUS, "10.0.0.2"))
    await moves.add(begun(203, "User:bob"))
