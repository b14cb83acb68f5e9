"""`penstock node`: required options."""

from pathlib import Path

import pytest

from penstock.cli.main import run


def test_config_without_etcd_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "node.toml"
    config.write_text("node-id = 2\n")
    assert run(["node", "--config", str(config)]) == 1
    said = capsys.readouterr().err
    assert "has no [etcd] section" in said
    assert "penstock up" in said
    assert len(said.strip().splitlines()) == 1


def test_config_file_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["node"]) == 2
    assert "--config" in capsys.readouterr().err


def test_single_node_settings_are_refused_with_several_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["up", "--nodes", "3", "--node-id", "2"]) == 1
    assert "--node-id is for a single node" in capsys.readouterr().err
    assert run(["up", "--nodes", "3", "--set", "num.partitons=2"]) == 1
    assert "did you mean 'num.partitions'" in capsys.readouterr().err
