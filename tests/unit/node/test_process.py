"""`penstock.node.process`: what a start refuses before anything is written."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.node.config import NodeConfig
from penstock.node.node import NodeFailed
from penstock.node.process import run


@pytest.mark.parametrize(
    ("which", "flag"), [("kafka_port", "--kafka-port"), ("http_port", "--http-port")]
)
def test_used_port_is_refused_before_the_directory_is_created(
    tmp_path: Path, which: str, flag: str
) -> None:
    data = tmp_path / "data"
    free = NodeConfig(data_dir=str(data), kafka_port=0, http_port=0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = replace(free, **{which: taken.getsockname()[1]})
        with pytest.raises(NodeFailed, match=f"is in use by another process.*{flag}"):
            run(config, lambda kafka, http: None)
    assert not data.exists()
