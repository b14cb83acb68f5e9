"""A whole node in this process: how it starts, stops, and fails."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.api.data.fetch_sessions import Followed
from penstock.cluster.configs import config_changes
from penstock.cluster.configs.effective_configs import InvalidConfig, Scope
from penstock.cluster.metadata import topics
from penstock.node import data_directory
from penstock.node.config import NodeConfig
from penstock.node.node import Node, NodeFailed
from penstock.node.process import serve
from penstock.runtime.directory_lock import InUse, Unusable
from penstock.wire.records import Record, encode, read_header
from tests.run_with import in_new_loop, run_with
from tests.unit.broker.server.world import (
    correlation_of,
    fetch_frame,
    produce_frame,
    produced,
    versions_frame,
)


def config_of(path: Path, **options: Any) -> NodeConfig:
    chosen = {"kafka_port": 0, "http_port": 0, **options}
    return NodeConfig(data_dir=str(path / "data"), **chosen)


def marker(path: Path) -> Path:
    return path / "data" / data_directory.CLEAN


async def create(node: Node, name: str = "t", partitions: int = 1) -> None:
    new = topics.NewTopic(name, partitions)
    plan = topics.plan_topic(new, node.ctx.image, node.configs, node.random)
    await node.ctx.reached(await topics.create_topic(node.store, plan))


def append(node: Node, name: str = "t") -> int:
    partition = node.partitions.get(name, 0)
    assert partition is not None
    batch = memoryview(encode([Record(0, 1000, None, b"v", ())]))
    partition.append(batch, read_header(batch), node.clock.now_ms())
    return partition.log.end_offset


async def exchange(address: str, *frames: bytes) -> list[bytes]:
    """Sends all frames over one connection; answers with as many replies."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"".join(frames))
        replies = []
        for _ in frames:
            length = int.from_bytes(await reader.readexactly(4), "big")
            replies.append(await reader.readexactly(length))
        return replies
    finally:
        writer.close()
        await writer.wait_closed()


async def running(config: NodeConfig, test: Callable[[Node, str], Awaitable[None]]) -> None:
    node = Node(config)
    kafka, _ = await node.start()
    try:
        await test(node, kafka)
    finally:
        await node.stop()


def on_node(test: Callable[[Node, str], Awaitable[None]], tmp_path: Path, **options: Any) -> None:
    """Runs a test with a node and its Kafka address."""
    asyncio.run(running(config_of(tmp_path, **options), test))


# -- starting and stopping --------------------------------------------------------------------


def test_node_serves_and_persists(tmp_path: Path) -> None:
    async def first(node: Node, kafka: str) -> None:
        await create(node)
        replies = await exchange(kafka, produce_frame(1), produce_frame(2))
        assert [produced(reply) for reply in replies] == [(0, 0), (0, 1)]

    async def second(node: Node, kafka: str) -> None:
        (reply,) = await exchange(kafka, produce_frame(3))
        assert produced(reply) == (0, 2)

    on_node(first, tmp_path)
    assert marker(tmp_path).exists()
    on_node(second, tmp_path)


def test_clean_marker_exists_only_between_a_stop_and_a_start(tmp_path: Path) -> None:
    async def check(node: Node, kafka: str) -> None:
        assert not marker(tmp_path).exists()

    for _ in range(2):
        asyncio.run(running(config_of(tmp_path), check))
        assert marker(tmp_path).exists()


def test_start_after_a_crash_logs_the_reason_for_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        asyncio.run(running(config_of(tmp_path), _nothing))
    assert "the last stop was not clean" not in caplog.text
    marker(tmp_path).unlink()  # As after kill -9.
    on_node(_nothing, tmp_path)
    assert "the last stop was not clean: checking logs before serving" in caplog.text


def test_cluster_id_survives_a_restart(tmp_path: Path) -> None:
    ids: list[str] = []

    async def check(node: Node, kafka: str) -> None:
        ids.append(node.ctx.image.cluster_id)
        assert list(node.ctx.image.brokers) == [5]

    for _ in range(2):
        asyncio.run(running(config_of(tmp_path, node_id=5), check))
    assert ids[0] == ids[1] != ""


def test_appended_records_are_on_disk_after_a_stop(tmp_path: Path) -> None:
    async def check(node: Node, kafka: str) -> None:
        await create(node)
        for _ in range(100):
            append(node)

    async def again(node: Node, kafka: str) -> None:
        partition = node.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.end_offset == partition.high_watermark == 100

    on_node(check, tmp_path)
    on_node(again, tmp_path)


def test_node_may_be_stopped_twice(tmp_path: Path) -> None:
    async def check(node: Node, kafka: str) -> None:
        await node.stop()

    on_node(check, tmp_path)
    assert marker(tmp_path).exists()


@run_with(on_node, overrides={"fetch.max.bytes": "1000000"}, fixtures=["tmp_path"])
async def test_changed_broker_config_reaches_fetches(node: Node, kafka: str) -> None:
    assert node.ctx.fetch.fetch_bytes_max == 1_000_000
    values = {"message.max.bytes": "5000"}
    edit = config_changes.replacing(Scope.BROKER, values)
    await create(node)
    await node.ctx.reached(await config_changes.alter_broker(node.store, None, edit))
    partition = node.partitions.get("t", 0)
    assert partition is not None
    assert partition.rules.message_bytes_max == 5000


@run_with(on_node, fixtures=["tmp_path"])
async def test_changed_connection_limit_reaches_the_listener(node: Node, kafka: str) -> None:
    values = {"max.connections.per.ip.overrides": "127.0.0.1:0"}
    edit = config_changes.replacing(Scope.BROKER, values)
    (reply,) = await exchange(kafka, versions_frame(1))
    assert correlation_of(reply) == 1
    await node.ctx.reached(await config_changes.alter_broker(node.store, None, edit))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await exchange(kafka, versions_frame(1))


@run_with(
    on_node, overrides={"max.incremental.fetch.session.cache.slots": "2"}, fixtures=["tmp_path"]
)
async def test_fetch_session_cache_follows_its_config(node: Node, kafka: str) -> None:
    wanted = [Followed("t", 0, 0, 1, -1, -1)]
    opened = [node.ctx.fetch.fetch_sessions.open(wanted, False, 0.0) for _ in range(3)]
    assert [session is not None for session in opened] == [True, True, False]


@run_with(on_node, fixtures=["tmp_path"])
async def test_parked_fetch_does_not_delay_a_stop(node: Node, kafka: str) -> None:
    await create(node)
    waiting = asyncio.ensure_future(exchange(kafka, fetch_frame(1, wait_ms=60_000)))
    partition = node.partitions.get("t", 0)
    assert partition is not None
    while not partition._watchers:
        await asyncio.sleep(0.01)
    await node.stop()
    results = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(results[0], OSError | EOFError)


# -- starting in vain -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "flag"), [("kafka_port", "--kafka-port"), ("http_port", "--http-port")]
)
@run_with(in_new_loop)
async def test_port_in_use_is_named_and_resources_are_released(
    *, tmp_path: Path, which: str, flag: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NodeFailed) as failed:
            await Node(config_of(tmp_path, **{which: port})).start()
    said = str(failed.value)
    assert f"127.0.0.1:{port} is in use" in said
    assert flag in said
    assert "\n" not in said
    # Nothing was served, so the directory is as clean as it was; and it is free again.
    assert marker(tmp_path).exists()
    await running(config_of(tmp_path), _nothing)


async def _nothing(node: Node, kafka: str) -> None:
    pass


@run_with(in_new_loop)
async def test_foreign_listen_address_is_refused(*, tmp_path: Path) -> None:
    with pytest.raises(NodeFailed, match=r"cannot listen on 192\.0\.2\.1:0.*--host"):
        await Node(config_of(tmp_path, host="192.0.2.1")).start()


@run_with(on_node, node_id=4, fixtures=["tmp_path"])
async def test_described_configs_show_data_and_listeners(
    node: Node, kafka: str, *, tmp_path: Path
) -> None:
    assert node.configs.items("log.dirs") == (str(tmp_path / "data"),)
    assert node.configs.items("listeners") == ("PLAINTEXT://127.0.0.1:0",)
    assert node.configs.integer("broker.id") == node.configs.integer("node.id") == 4


@run_with(in_new_loop)
async def test_data_path_that_is_not_a_directory_is_named(*, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")

    with pytest.raises(Unusable, match=r"data: Not a directory; choose another --data"):
        await Node(config_of(tmp_path)).start()


@run_with(on_node, fixtures=["tmp_path"])
async def test_directory_in_use_is_refused_with_its_user(
    node: Node, kafka: str, *, tmp_path: Path
) -> None:
    with pytest.raises(InUse, match=f"in use by process {os.getpid()}"):
        await Node(config_of(tmp_path)).start()
    await create(node)  # The first one is not disturbed.


@run_with(in_new_loop)
async def test_directory_of_another_node_is_refused(*, tmp_path: Path) -> None:
    await running(config_of(tmp_path, node_id=1), _nothing)
    with pytest.raises(InvalidConfig, match="belongs to node 1, this is node 2"):
        await Node(config_of(tmp_path, node_id=2)).start()
    assert marker(tmp_path).exists(), "it is none of our business"
    await running(config_of(tmp_path, node_id=1), _nothing)


@run_with(in_new_loop)
async def test_damaged_owner_file_is_refused_and_the_lock_released(*, tmp_path: Path) -> None:
    await running(config_of(tmp_path), _nothing)
    meta = tmp_path / "data" / data_directory.META
    good = meta.read_bytes()
    meta.write_bytes(good[:-3] + b"xyz")
    with pytest.raises(InvalidConfig, match="is damaged"):
        await Node(config_of(tmp_path)).start()
    meta.write_bytes(good)
    await running(config_of(tmp_path), _nothing)


@run_with(in_new_loop)
async def test_metadata_of_another_cluster_is_refused(*, tmp_path: Path) -> None:
    await running(config_of(tmp_path), _nothing)
    await running(config_of(tmp_path / "other"), _nothing)
    for file in (tmp_path / "other" / "data").glob("metadata.db*"):
        file.replace(tmp_path / "data" / file.name)
    with pytest.raises(NodeFailed, match="its metadata is of cluster"):
        await Node(config_of(tmp_path)).start()


def test_invalid_broker_config_is_refused_before_any_change(tmp_path: Path) -> None:
    async def check() -> None:
        with pytest.raises(InvalidConfig):
            Node(config_of(tmp_path, overrides={"num.partitions": "none"}))

    asyncio.run(check())
    assert not (tmp_path / "data").exists()


# -- failing ----------------------------------------------------------------------------------


class BrokenSync:
    """Makes the sync of one real file fail."""

    def __init__(self, node: Node, name: str = "t") -> None:
        partition = node.partitions.get(name, 0)
        assert partition is not None
        self.file: Any = partition.log.segments.active.file

    def __enter__(self) -> None:
        # As after a write-back error: the file has failed and stays so.
        self.file._failed = True

    def __exit__(self, *exc: object) -> None:
        pass


def test_failed_sync_stops_the_node_without_a_clean_marker(tmp_path: Path) -> None:
    addresses: list[str] = []

    async def check() -> None:
        node = Node(config_of(tmp_path))
        kafka, _ = await node.start()
        await create(node)
        (good,) = await exchange(kafka, produce_frame(1))
        assert produced(good) == (0, 0)
        with BrokenSync(node):
            (bad,) = await exchange(kafka, produce_frame(2))
        assert produced(bad)[0] != 0
        with pytest.raises(NodeFailed, match="failed to make data durable"):
            await node.failed
        await node.stop()
        addresses.append(kafka)

    asyncio.run(check())
    assert not marker(tmp_path).exists()

    async def again(node: Node, kafka: str) -> None:
        partition = node.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.end_offset >= 1, "what was acknowledged is there"

    on_node(again, tmp_path)


def test_sync_failing_during_a_stop_leaves_no_marker(tmp_path: Path) -> None:
    async def check() -> None:
        node = Node(config_of(tmp_path))
        await node.start()
        await create(node)
        with BrokenSync(node):
            append(node)
            await node.stop()
        assert isinstance(node.failed.exception(), NodeFailed)

    asyncio.run(check())
    assert not marker(tmp_path).exists()


def test_failed_background_task_fails_the_node(tmp_path: Path) -> None:
    async def check() -> None:
        node = Node(config_of(tmp_path))
        await node.start()

        async def broken() -> None:
            raise ZeroDivisionError("a bug")

        node._watch("broken", broken())
        with pytest.raises(NodeFailed, match="the broken task ended: ZeroDivisionError"):
            await node.failed
        await node.stop()

    asyncio.run(check())
    assert not marker(tmp_path).exists()


# -- serving until a signal -------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_node_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    ready: list[tuple[str, str]] = []

    def announce(kafka: str, http: str) -> None:
        ready.append((kafka, http))
        os.kill(os.getpid(), number)

    asyncio.run(serve(config_of(tmp_path), announce))
    assert ready[0][0].startswith("127.0.0.1:")
    assert ready[0][1].startswith("http://127.0.0.1:")
    assert marker(tmp_path).exists()


def test_serve_ends_with_the_failure_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Node] = []
    start = Node.start

    async def noted(self: Node) -> tuple[str, str]:
        made.append(self)
        return await start(self)

    monkeypatch.setattr(Node, "start", noted)

    def announce(kafka: str, http: str) -> None:
        made[0]._disk_failed(OSError(errno.EIO, "gone"))

    with pytest.raises(NodeFailed, match="failed to make data durable"):
        asyncio.run(serve(config_of(tmp_path), announce))
    assert not marker(tmp_path).exists()


@run_with(on_node, fixtures=["tmp_path"])
async def test_acknowledgements_are_sent_before_a_stop(node: Node, kafka: str) -> None:
    await create(node)
    partition = node.partitions.get("t", 0)
    assert partition is not None
    asking = asyncio.ensure_future(exchange(kafka, *(produce_frame(n) for n in range(50))))
    while partition.log.end_offset < 50:
        await asyncio.sleep(0)
    await node.stop()
    replies = await asking
    assert [correlation_of(reply) for reply in replies] == list(range(50))
    assert all(produced(reply)[0] == 0 for reply in replies)
