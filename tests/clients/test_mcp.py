"""`penstock mcp`: its tools through the SDK's own client, on a real broker."""

import asyncio
import base64
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from penstock import SyncClient, SyncMessage
from tests.brokers import COMMAND
from tests.conftest import Broker
from tests.guarded import ADMIN, Guarded
from tests.run_with import run_with
from tests.waiting import eventually

pytestmark = pytest.mark.clients

READING_MIN = 20


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(test())


class Assistant:
    """An MCP client that started `penstock mcp`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, tool: str, **arguments: Any) -> Any:
        """Calls a tool; returns its answer, parsed if it is JSON, or raises its refusal."""
        result = await self.client.call_tool(tool, arguments)
        text = "\n".join(part.text for part in result.content)  # type: ignore[union-attr]
        if result.is_error:
            raise PermissionError(text)
        try:
            return json.loads(text)
        except ValueError:
            return text

    async def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in (await self.client.list_tools()).tools}


def register(guarded: Guarded, subject: str, schema: str) -> None:
    """Registers a schema as the administrator."""
    login = base64.b64encode(":".join(ADMIN).encode()).decode()
    request = urllib.request.Request(
        f"{guarded.process.http}/subjects/{subject}/versions",
        json.dumps({"schema": schema}).encode(),
        {"Authorization": f"Basic {login}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def started(*words: str) -> Client:
    return Client(StdioServerParameters(command=COMMAND, args=[*words]), read_timeout_seconds=120)


@pytest.fixture(scope="module")
def orders(_shared_broker: Broker) -> str:
    """Topic with six records, of which a queue dead-lettered two for the same cause."""
    name = "mcp-orders"
    with SyncClient(_shared_broker.bootstrap) as client:
        client.create_topic(name, partitions=1)
        for number in range(6):
            client.publish(name, {"order": number}, key=f"k{number}")
        with client.queue(name, group="mcp-billing") as queue:
            taken: list[SyncMessage] = []
            while len(taken) < 2:
                taken += queue.receive(2 - len(taken), wait="5s")
            for message in taken:
                message.reject(f"unknown postcode for order {message.json()['order']}")
    listing = [COMMAND, "dlq", "list", f"{name}.dlq", "--format", "json"]
    listing += ["-b", _shared_broker.bootstrap]

    def are_listed() -> bool:
        done = subprocess.run(listing, capture_output=True, text=True, check=False)
        return done.returncode == 0 and len(json.loads(done.stdout)) == 2

    eventually(are_listed, "two dead letters")
    return name


@run_with(run)
async def test_reading_tools_are_read_only_and_described(*, broker: Broker) -> None:
    async with started("mcp", "-b", broker.bootstrap) as client:
        tools = await Assistant(client).tools()
    assert len(tools) >= READING_MIN
    for tool in tools.values():
        assert tool.annotations.read_only_hint
        assert tool.description
    assert not {"publish", "delete_topic", "redrive_dead_letters"} & set(tools)


@run_with(run)
async def test_topics_messages_groups_and_the_cluster_are_told(
    *, broker: Broker, orders: str
) -> None:
    async with started("mcp", "-b", broker.bootstrap) as client:
        assistant = Assistant(client)
        assert [row["name"] for row in await assistant.ask("list_topics", pattern=orders)] == [
            orders
        ]
        (topic,) = await assistant.ask("describe_topic", topic=orders)
        assert topic["name"] == orders
        records = await assistant.ask("read_messages", topic=orders, position="start", limit=3)
        assert [record["key"] for record in records] == ["k0", "k1", "k2"]
        assert "mcp-billing" in str(await assistant.ask("list_groups"))
        assert orders in str(await assistant.ask("list_queues"))
        assert "k2" in str(await assistant.ask("peek_queue", topic=orders, group="mcp-billing"))
        assert broker.bootstrap.rpartition(":")[2] in str(await assistant.ask("describe_cluster"))
        assert await assistant.ask("list_configs", topic=orders, changed_only=False)


@run_with(run)
async def test_every_reading_tool_answers(*, tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    try:
        guarded.attempt("topic", "create", "orders").check_returncode()
        guarded.attempt("topic", "create", "orders.dlq").check_returncode()
        guarded.attempt("produce", "orders", "{}").check_returncode()
        guarded.attempt("consume", "orders", "-g", "billing", "-n", "1").check_returncode()
        register(guarded, "orders-value", '{"type": "string"}')
        wanted: dict[str, dict[str, Any]] = {
            "describe_topic": {"topic": "orders"},
            "read_messages": {"topic": "orders"},
            "describe_group": {"group": "billing"},
            "advise_group": {"group": "billing", "seconds": 1},
            "show_schema": {"subject": "orders-value"},
            "list_dead_letters": {"topic": "orders.dlq"},
            "count_dead_letters": {"topic": "orders.dlq"},
            "plan_redrive": {"topic": "orders.dlq"},
        }
        # These need a queue and dead letters: the other tests ask them.
        elsewhere = {"describe_queue", "peek_queue", "show_dead_letter"}
        config = str(tmp_path / "admin.properties")
        words = ("--command-config", config, "mcp", "--http", guarded.process.http, "-b")
        async with started(*words, guarded.process.bootstrap) as client:
            assistant = Assistant(client)
            tools = await assistant.tools()
            answers = {
                name: await assistant.ask(name, **wanted.get(name, {}))
                for name in tools.keys() - elsewhere
            }
        assert answers["list_schemas"] == {"orders-value": [1]}
        assert answers["show_schema"]["schema"] == '"string"'
        assert "billing" in str(answers["describe_group"])
        assert "CreateTopics" in str(answers["read_audit_log"])
        assert "admin" in str(answers["list_users"])
    finally:
        guarded.process.stop()


@run_with(run)
async def test_dead_letters_are_counted_by_cause_and_planned(
    *, broker: Broker, orders: str
) -> None:
    async with started("mcp", "-b", broker.bootstrap) as client:
        assistant = Assistant(client)
        assert f"{orders}.dlq" in str(await assistant.ask("list_dead_letter_topics"))
        causes = await assistant.ask("count_dead_letters", topic=f"{orders}.dlq")
        assert "2" in str(causes)
        assert "unknown postcode" in str(causes)
        listed = await assistant.ask("list_dead_letters", topic=f"{orders}.dlq")
        assert len(listed) == 2
        asked = {"topic": f"{orders}.dlq", "message": "0:0"}
        assert "unknown postcode" in str(await assistant.ask("show_dead_letter", **asked))
        described = await assistant.ask("describe_queue", topic=orders, group="mcp-billing")
        assert "mcp-billing" in str(described)
        assert await assistant.ask("plan_redrive", topic=f"{orders}.dlq")
        assert len(await assistant.ask("list_dead_letters", topic=f"{orders}.dlq")) == 2


@run_with(run)
async def test_writing_tools_change_nothing_before_they_are_applied(
    *, broker: Broker, topic: str
) -> None:
    async with started("mcp", "--allow-writes", "-b", broker.bootstrap) as client:
        assistant = Assistant(client)
        tools = await assistant.tools()
        assert tools["delete_topic"].annotations.destructive_hint
        assert not tools["publish"].annotations.read_only_hint
        await assistant.ask("create_topic", topic=topic, partitions=2)
        assert await assistant.ask("list_topics", pattern=topic) == []
        await assistant.ask("create_topic", topic=topic, partitions=2, apply=True)
        assert await assistant.ask("list_topics", pattern=topic)
        shown = await assistant.ask("publish", topic=topic, payload="a", key="--all")
        assert shown["would_publish"]["key"] == "--all"
        assert not await assistant.ask("read_messages", topic=topic, position="start")
        await assistant.ask("publish", topic=topic, payload="--all", key="k", apply=True)
        (record,) = await assistant.ask("read_messages", topic=topic, position="start")
        assert (record["key"], record["value"]) == ("k", "--all")
        await assistant.ask("delete_topic", topic=topic)
        assert await assistant.ask("describe_topic", topic=topic)
        await assistant.ask("delete_topic", topic=topic, apply=True)
        with pytest.raises(PermissionError, match=r"does not exist|UNKNOWN_TOPIC"):
            await assistant.ask("describe_topic", topic=topic)


@run_with(run)
async def test_tools_have_the_permissions_of_their_user_only(*, tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    try:
        (tmp_path / "password").write_text("long enough")
        password = ("--password-file", str(tmp_path / "password"))
        guarded.attempt("user", "set", "bob", *password).check_returncode()
        guarded.attempt("topic", "create", "secrets").check_returncode()
        guarded.properties("bob", "long enough")
        config = str(tmp_path / "bob.properties")
        words = ("--command-config", config, "mcp", "--allow-writes", "-b")
        async with started(*words, guarded.process.bootstrap) as client:
            assistant = Assistant(client)
            assert await assistant.ask("list_topics") == []
            for tool, wanted in (
                ("read_messages", {"topic": "secrets"}),
                ("delete_topic", {"topic": "secrets", "apply": True}),
                ("publish", {"topic": "secrets", "payload": "x", "apply": True}),
                ("list_users", {}),
                ("read_audit_log", {}),
            ):
                with pytest.raises(PermissionError):
                    await assistant.ask(tool, **wanted)
        shown = guarded.attempt("topic", "list", "--format", "json").stdout
        assert "secrets" in shown
    finally:
        guarded.process.stop()


def test_address_that_others_reach_is_refused() -> None:
    done = subprocess.run(
        [COMMAND, "mcp", "--transport", "http", "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "every caller would act with your permissions" in done.stderr


def test_missing_sdk_names_the_extra() -> None:
    program = (
        "import sys; sys.modules.update(mcp=None, pydantic=None); "
        "from penstock.cli.main import run; sys.exit(run(['mcp']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith("pip install 'penstock-mq[mcp]'")
