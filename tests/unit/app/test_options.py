"""Options of the public API: misspelt ones fail at once, at type check and at run time."""

import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Client, SyncClient, Worker
from penstock.app import options
from penstock.app.outgoing import Outgoing

SAMPLE = """
from dataclasses import dataclass

from penstock import Client, Message, SyncClient, Worker

worker = Worker(group="workers", linger_ms=5)


@dataclass
class Order:
    id: int


@worker.task("orders")
async def bill(order: Order) -> str:
    return str(order.id)


@worker.task("orders")
def ship(order: Order, message: Message) -> None:
    print(message.json(Order).id)


async def main(client: Client) -> None:
    await client.publish("jobs", priority=9)
    with SyncClient(linger_ms=5) as other:
        other.publish("jobs", priority=9)
"""
MISTAKES = {
    'Worker(group="workers", concurrent=4)': 'Unexpected keyword argument "concurrent"',
    "SyncClient(linger=5)": 'Unexpected keyword argument "linger"',
    'SyncClient().publish("jobs", prioritty=9)': 'did you mean "priority"?',
    'worker.task("jobs", retires=4)': 'did you mean "retries"?',
    'SyncClient().queue("jobs", "workers", delivery="once")': "incompatible type",
    'SyncClient().consume("jobs", strt="latest")': 'Unexpected keyword argument "strt"',
    'Client().queue("jobs", "workers", prefetsh=1)': 'did you mean "prefetch"?',
}


def test_misspelt_options_fail_the_type_check(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    lines = textwrap.dedent(SAMPLE).strip().splitlines()
    sample.write_text("\n".join([*lines, *MISTAKES]) + "\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"),
            *("--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache"), str(sample)),
        ],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        env={"MYPYPATH": str(Path(__file__).parents[3] / "src"), "PATH": ""},
        check=False,
    )
    found = {
        int(line.split(":")[1]): line for line in done.stdout.splitlines() if ": error:" in line
    }
    assert sorted(found) == list(range(len(lines) + 1, len(lines) + len(MISTAKES) + 1)), (
        done.stdout + done.stderr
    )
    for line, told in zip(sorted(found), MISTAKES.values(), strict=True):
        assert told in found[line]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: Client(linger=5), "Client() has no option 'linger': did you mean 'linger_ms'?"),  # type: ignore[call-arg]
        (lambda: SyncClient(clientid="x"), "did you mean 'client_id'?"),  # type: ignore[call-arg]
        (
            lambda: Worker(group="x", concurrent=4),  # type: ignore[call-arg]
            "Worker() has no option 'concurrent': did you mean 'concurrency', an option of "
            "Worker.task()?",
        ),
        (lambda: Worker(group="x", gracee=1), "did you mean 'grace'?"),  # type: ignore[call-arg]
        (
            lambda: Worker(group="x").task("jobs", retires=1),  # type: ignore[call-arg]
            "Worker.task() has no option 'retires': did you mean 'retries'?",
        ),
        (lambda: Client(zzz=1), "options are auto_create, batch_bytes, "),  # type: ignore[call-arg]
    ],
)
def test_misspelt_options_fail_at_run_time(call: Callable[[], object], told: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert told in str(caught.value)


async def _publish_misspelt(client: Client) -> None:
    await client.publish("jobs", prioritty=9)  # type: ignore[call-arg]


def test_misspelt_options_of_methods_fail_before_anything_is_sent() -> None:
    client = Client()
    for call in (
        lambda: client.queue("jobs", "workers", prefetsh=1),  # type: ignore[call-arg]
        lambda: client.consume("jobs", strt="latest"),  # type: ignore[call-arg]
        lambda: _publish_misspelt(client).send(None),
        lambda: client.create_topic("jobs", partitons=1).send(None),  # type: ignore[call-arg]
        lambda: client.poll("jobs", "workers", wai=1).send(None),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="did you mean"):
            call()


def _named(call: Callable[..., Any], *without: str) -> dict[str, Any]:
    parameters = inspect.signature(call).parameters.values()
    wanted = [one for one in parameters if one.name not in ("self", "unknown", *without)]
    return {one.name: one.annotation for one in wanted}


def test_option_types_match_the_signatures_they_stand_for() -> None:
    for declared, call, without in (
        (options.ClientOptions, Client.__init__, ("brokers",)),
        (options.PublishOptions, Client.publish, ("topic", "payload")),
        (
            options.TopicOptions,
            Client.create_topic,
            ("name", "partitions", "rf", "retention_ms"),
        ),
        (options.QueueOptions, Client.queue, ("topic", "group")),
        (options.PollOptions, Client.poll, ("topic", "group", "max", "wait")),
        (options.LogOptions, Client.consume, ("topic", "group")),
    ):
        assert dict(declared.__annotations__) == _named(call, *without)
    outgoing = {one for one in Outgoing.__dataclass_fields__ if one != "payload"}
    assert set(options.PublishOptions.__annotations__) == outgoing


def test_brokers_come_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BROKERS", "queue.example:9093")
    assert options.default_brokers(None) == "queue.example:9093"
    assert options.default_brokers("here:1") == "here:1"
    monkeypatch.delenv("PENSTOCK_BROKERS")
    assert options.default_brokers(None) == "localhost:9092"
