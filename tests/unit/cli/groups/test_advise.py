"""`penstock group advise` against a broker: a hot key is found in a hot partition."""

import json

import pytest

from penstock.cli import main
from penstock.testing import Broker


def test_a_hot_key_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=4)
        at = ["-b", broker.bootstrap]
        for number in range(12):
            broker.publish("orders", b"v", key=f"k{number}")
        seek = ["group", "seek", "billing", "--to", "start", "-t", "orders", "--yes", *at]
        assert main.run(seek) == 0
        for _ in range(60):
            broker.publish("orders", b"v", key="big")
        capsys.readouterr()
        arguments = ["group", "advise", "billing", "--seconds", "1", *at]
        assert main.run([*arguments, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["lag"] == 72
        (hot,) = found["hot_partitions"]
        assert hot["hot_keys"][0]["key"] == "big"
        assert any("no members" in one["what"] for one in found["findings"])
        assert main.run(arguments) == 0
        assert "-> spread the hot key" in capsys.readouterr().out
