"""Metadata that is missing or older than its node: refused, and made anew of what it knows."""

import asyncio
import functools
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import TopicId
from penstock.cluster.metadata import known_metadata
from penstock.cluster.metadata.topics import NewTopic, create_topic, plan_topic
from penstock.node.metadata_recovery import CannotRecover, RecoveryOutcome, recover
from penstock.node.node import Node, NodeFailed
from penstock.node.ports import real_ports
from tests.unit.node.test_node import append, config_of

Work = Callable[..., Coroutine[Any, Any, None]]


def on_a_loop(work: Work) -> Callable[..., None]:
    @functools.wraps(work)
    def test(**fixtures: Any) -> None:
        asyncio.run(work(**fixtures))

    return test


CONFIGS = {"retention.ms": "123456789"}


async def started(path: Path) -> Node:
    node = Node(config_of(path))
    await node.start()
    return node


async def create(node: Node, name: str) -> TopicId:
    new = NewTopic(name, 2, configs=dict(CONFIGS))
    plan = plan_topic(new, node.ctx.image, node.configs, node.random)
    await node.ctx.reached(await create_topic(node.store, plan))
    return plan.id


async def recovered(path: Path, **options: Any) -> RecoveryOutcome:
    return await recover(real_ports(), config_of(path), (), **{"apply": True, **options})


def set_aside(path: Path) -> None:
    for file in (path / "data").glob("metadata.db*"):
        shutil.copy(file, path / file.name)


def put_back(path: Path) -> None:
    for file in (path / "data").glob("metadata.db*"):
        file.unlink()
    for file in path.glob("metadata.db*"):
        shutil.copy(file, path / "data" / file.name)


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "restored"])
@on_a_loop
async def test_rolled_back_metadata_is_refused_and_recovered(tmp_path: Path, is_lost: bool) -> None:
    node = await started(tmp_path)
    await create(node, "early")
    early_id = await node.producer_ids.next()
    await node.stop()
    if not is_lost:
        set_aside(tmp_path)
    node = await started(tmp_path)
    topic_id = await create(node, "late")
    assert append(node, "late") == 1
    late_id = await node.producer_ids.next()
    assert late_id > early_id
    await node.stop()

    put_back(tmp_path)
    with pytest.raises(NodeFailed, match="is older than what this node has seen"):
        await started(tmp_path)
    shown = await recovered(tmp_path, apply=False)
    assert shown.plan is not None
    assert "topic late is created again" in shown.plan.done
    with pytest.raises(NodeFailed, match="recover-metadata"):
        await started(tmp_path)
    await recovered(tmp_path)
    assert (await recovered(tmp_path)).plan is None, "there is nothing more to do"

    node = await started(tmp_path)
    topic = node.ctx.image.topics["late"]
    assert (topic.id, dict(topic.configs), len(topic.partitions)) == (topic_id, CONFIGS, 2)
    partition = node.partitions.get("late", 0)
    assert partition is not None
    assert partition.log.end_offset == 1
    assert await node.producer_ids.next() > late_id
    assert append(node, "late") == 2
    await node.stop()
    await (await started(tmp_path)).stop()


@on_a_loop
async def test_topics_are_recovered_from_logs_without_the_file(tmp_path: Path) -> None:
    """As directories of versions that wrote nothing down."""
    node = await started(tmp_path)
    topic_id = await create(node, "t")
    append(node, "t")
    await node.stop()
    (tmp_path / "data" / known_metadata.FILE).unlink()
    put_back(tmp_path)
    with pytest.raises(NodeFailed, match="it does not know t"):
        await started(tmp_path)
    outcome = await recovered(tmp_path)
    assert outcome.plan is not None
    assert "the configs of t are not known: it gets the defaults" in outcome.plan.check
    node = await started(tmp_path)
    assert node.ctx.image.topics["t"].id == topic_id
    partition = node.partitions.get("t", 0)
    assert partition is not None
    assert partition.log.end_offset == 1
    await node.stop()


@on_a_loop
async def test_intact_metadata_is_not_recovered(tmp_path: Path) -> None:
    node = await started(tmp_path)
    await create(node, "t")
    await node.stop()
    assert (await recovered(tmp_path)).plan is None
    (tmp_path / "data" / known_metadata.FILE).write_bytes(b"half a file")
    await (await started(tmp_path)).stop()
    with pytest.raises(CannotRecover, match="not a node's data directory"):
        await recovered(tmp_path / "elsewhere")


@on_a_loop
async def test_topic_is_recorded_before_it_is_served(tmp_path: Path) -> None:
    node = await started(tmp_path)
    gate = asyncio.Event()
    real = node.memory._workers

    class Held:
        async def run(self, work: Any, *args: Any) -> Any:
            await gate.wait()
            return await real.run(work, *args)

    node.memory._workers = Held()  # type: ignore[assignment]
    new = NewTopic("t", 1)
    plan = plan_topic(new, node.ctx.image, node.configs, node.random)
    revision = await create_topic(node.store, plan)
    await node.watcher.reached(revision)
    waiting = asyncio.ensure_future(node.partitions.reached(revision))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert node.partitions.get("t", 0) is None
    gate.set()
    await waiting
    known = known_metadata.read(node.disk, str(tmp_path / "data"))
    assert known is not None
    assert "t" in known.topics()
    await node.stop()
