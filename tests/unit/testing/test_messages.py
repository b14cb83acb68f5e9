"""Messages for unit tests of handlers."""

import asyncio

import pytest

from penstock.app.message import Message
from penstock.app.worker import Worker
from penstock.base.errors import Refused
from penstock.testing import BuiltMessage, build_message


def test_built_message_has_the_fields_of_a_received_one() -> None:
    message = build_message({"id": 7}, topic="jobs", key="ann", headers={"n": 1}, attempt=3)
    assert isinstance(message, Message)
    assert (message.topic, message.key, message.json()) == ("jobs", b"ann", {"id": 7})
    assert (message.header("n"), message.attempt, message.is_settled) == ("1", 3, False)
    assert build_message(None).is_tombstone


def test_built_message_records_its_settlement() -> None:
    async def settle() -> list[BuiltMessage]:
        built = [build_message("x") for _ in range(3)]
        await built[0].extend("1m")
        await built[0].ack()
        await built[1].nack("30s", error=ValueError("later"))
        await built[2].reject("never")
        with pytest.raises(Refused, match="was settled before"):
            await built[2].ack()
        return built

    done, failed, dead = asyncio.run(settle())
    assert (done.outcome, done.extensions, done.is_settled) == ("ack", 1, True)
    assert (failed.outcome, failed.delay_s) == ("nack", 30.0)
    assert (failed.error_class, failed.error_message) == ("ValueError", "later")
    assert (dead.outcome, dead.error_message) == ("reject", "never")


def test_task_is_called_like_its_handler() -> None:
    worker = Worker(group="x")

    @worker.task("jobs")
    async def double(message: Message) -> int:
        return 2 * int(message.text)

    assert asyncio.run(double(build_message("21"))) == 42
