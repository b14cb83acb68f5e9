"""`penstock.node.metadata_check`: which stores a node refuses at start."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.ids import TopicId, show_topic_id
from penstock.node.metadata_check import StoreIsOlder, remember
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

UNKNOWN = TopicId(b"u" * 16)


@pytest.mark.parametrize("lacks_lives", [False, True])
@run_with(on_node)
async def test_store_without_topics_and_lives_of_this_node_is_refused(
    node: Node, *, lacks_lives: bool
) -> None:
    await node.create("known", 1)
    image = node.ctx.image
    config: Any = SimpleNamespace(data_dir="data", node_id=node.ctx.node_id, etcd=None)
    node.disk.mkdir(f"data/logs/orders.{show_topic_id(UNKNOWN)}")
    ports: Any = SimpleNamespace(keeps_metadata=True, workers=node.workers, disk=node.disk)
    watcher: Any = SimpleNamespace(on_change=lambda follow: None)
    if lacks_lives:
        with pytest.raises(StoreIsOlder, match="orders"):
            await remember(ports, config, watcher, image, lacks_lives=True)
    else:
        await remember(ports, config, watcher, image)
