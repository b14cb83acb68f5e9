"""A node and its keys: refused with a clear word and nothing touched, rotated, shredded."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.base.errors import Refused
from penstock.cluster.configs import config_changes
from penstock.cluster.configs.config_changes import Alteration, Op, altering, with_key
from penstock.cluster.configs.effective_configs import Scope
from penstock.cluster.metadata import topics
from penstock.cluster.storage.log_encryption import RotationProgress
from penstock.node.config import NodeConfig
from penstock.node.node import Node, NodeFailed
from penstock.security.keyring import KeyTrouble, kek_of
from tests.run_with import in_new_loop, run_with
from tests.unit.node.test_node import append, running

OLD, NEW = "11" * 32, "22" * 32
OLD_ID, NEW_ID = kek_of(bytes.fromhex(OLD)).id, kek_of(bytes.fromhex(NEW)).id


def config_of(path: Path, keys: str | None = OLD, **sets: str) -> NodeConfig:
    overrides = dict(sets)
    if keys is not None:
        (path / "kek").write_text(keys)
        overrides["encryption.kek.source"] = f"file:{path / 'kek'}"
    return NodeConfig(str(path / "data"), kafka_port=0, http_port=0, overrides=overrides)


def with_node(
    test: Callable[[Node], Awaitable[None]],
    tmp_path: Path,
    keys: str | None = OLD,
    **overrides: str,
) -> None:
    config = config_of(tmp_path, keys, **overrides)

    async def main() -> None:
        await running(config, lambda node, _: test(node))

    asyncio.run(main())


async def create(node: Node, name: str = "t", **configs: str) -> None:
    new = topics.NewTopic(name, 1, configs={k.replace("_", "."): v for k, v in configs.items()})
    plan = topics.plan_topic(new, node.ctx.image, node.configs, node.random)
    await node.ctx.reached(await topics.create_topic(node.store, plan))


async def fill(node: Node) -> None:
    await create(node, encryption_enable="true")
    append(node)


def contents(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (NEW, f"{OLD_ID}, which encryption.kek.source does not contain; it has {NEW_ID}"),
        ("sesame", "line 1 is not a key"),
        ("", "no key found"),
        (None, "is encrypted, and encryption.kek.source is not set"),
    ],
)
def test_wrong_key_stops_the_start_and_changes_nothing(
    tmp_path: Path, keys: str | None, said: str
) -> None:
    with_node(fill, tmp_path)
    before = contents(tmp_path / "data")

    async def start() -> None:
        with pytest.raises(NodeFailed) as failed:
            await Node(config_of(tmp_path, keys)).start()
        assert said in str(failed.value)
        assert "sesame" not in str(failed.value)

    asyncio.run(start())
    assert contents(tmp_path / "data") == before


@run_with(in_new_loop)
async def test_encryption_by_default_needs_a_key(*, tmp_path: Path) -> None:
    config = config_of(tmp_path, None, **{"encryption.enable": "true"})

    with pytest.raises(NodeFailed, match="needs a key"):
        await Node(config).start()


@run_with(with_node, keys=None, fixtures=["tmp_path"])
async def test_topic_encryption_needs_a_key(node: Node) -> None:
    with pytest.raises(Refused, match="needs a key"):
        await create(node, encryption_enable="true")
    await create(node)
    edit = altering(Scope.TOPIC, [Alteration("encryption.enable", Op.SET, "true")])
    with pytest.raises(Refused, match="needs a key"):
        await config_changes.alter_topic(node.store, "t", with_key(edit, node.configs))


@run_with(with_node, **{"encryption.enable": "true"}, fixtures=["tmp_path"])
async def test_internal_topics_follow_the_default(node: Node) -> None:
    await create(node)
    assert append(node) == 1
    assert node.ctx.admin.encryption is not None
    assert node.ctx.admin.encryption.uses() == {OLD_ID: 1}
    assert node.partitions.get("t", 0) is not None


def test_key_rotation_allows_removing_the_unused_old_key(
    tmp_path: Path,
) -> None:
    kek = tmp_path / "kek"

    async def rotate(node: Node) -> None:
        for name in ("a", "b", "c"):
            await create(node, name, encryption_enable="true")
        await create(node, "plain")
        encryption = node.ctx.admin.encryption
        assert encryption is not None
        assert (encryption.uses(), encryption.plain) == ({OLD_ID: 3}, 1)
        kek.write_text(NEW)
        with pytest.raises(KeyTrouble, match=f"{OLD_ID} is still in use"):
            await encryption.reload()
        kek.write_text(f"{NEW}\n{OLD}\n")
        await encryption.reload()
        assert await encryption.rotate(2) == RotationProgress(2, 1)
        assert encryption.uses() == {NEW_ID: 2, OLD_ID: 1}
        await topics.delete_topic(node.store, "b")
        assert append(node, "a") == 1
        assert await encryption.rotate(100) == RotationProgress(1, 0)
        assert await encryption.rotate(100) == RotationProgress(0, 0)
        kek.write_text(NEW)
        await encryption.reload()

    async def still_there(node: Node) -> None:
        assert append(node, "a") == 2

    with_node(rotate, tmp_path)
    with_node(still_there, tmp_path, NEW)


@run_with(with_node, fixtures=["tmp_path"])
async def test_topic_deletion_destroys_its_keys(node: Node, *, tmp_path: Path) -> None:
    await fill(node)
    keys = list((tmp_path / "data" / "logs").rglob("key"))
    assert len(keys) == 1
    held = keys[0].open("rb")  # A process that still has it open sees only zeros.
    with held:
        await node.ctx.reached(await topics.delete_topic(node.store, "t"))
        async with asyncio.timeout(30):
            while os.listdir(tmp_path / "data" / "logs"):
                await asyncio.sleep(0.01)
        assert set(held.read()) == {0}
