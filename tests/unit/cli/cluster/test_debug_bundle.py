"""`penstock debug bundle`: what is in it, what is not, and that it is made when nothing answers."""

import json
import stat
import tarfile
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.cluster import debug_bundle
from penstock.testing import Broker

CLOSED_PORT = "127.0.0.1:1"


def read(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        found = {}
        for entry in tar.getmembers():
            file = tar.extractfile(entry)
            assert file is not None
            found[entry.name.removeprefix("penstock-debug/")] = file.read().decode()
    return found


def test_bundle_is_made_without_a_cluster_and_has_no_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, log, out = tmp_path / "node.toml", tmp_path / "node.log", tmp_path / "b.tar.gz"
    config.write_text('node-id = 2\n[etcd]\nendpoints = ["http://e:1"]\npassword = "hunter2"\n')
    log.write_text(
        "x" * (debug_bundle.LOG_BYTES_MAX + 10) + "\nlogin with password=hunter2\nlast\n"
    )
    arguments = ["debug", "bundle", "-o", str(out), "--config", str(config), "--log", str(log)]
    arguments += ["--data", str(tmp_path), "-b", CLOSED_PORT, "--http", "http://127.0.0.1:1"]
    assert main.run(arguments) == 0
    files = read(out)
    assert not any("hunter2" in text for text in files.values())
    assert "node-id = 2" in files["node.toml"]
    assert files["logs/1-node.log"].endswith("last\n")
    assert len(files["logs/1-node.log"]) <= debug_bundle.LOG_BYTES_MAX + 20
    assert "cluster.json: cannot reach" in files["missing.txt"]
    assert "penstock" in json.loads(files["versions.json"])
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert "could not be collected" in capsys.readouterr().out


def test_bundle_holds_the_state_of_the_cluster(tmp_path: Path) -> None:
    out = tmp_path / "b.tar.gz"
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        arguments = ["debug", "bundle", "-o", str(out), "--data", str(tmp_path)]
        arguments += ["-b", broker.bootstrap, "--http", broker.http]
        assert main.run(arguments) == 0
    files = read(out)
    assert "missing.txt" not in files, files["missing.txt"]
    assert json.loads(files["cluster.json"])["offline"] == 0
    topics = {row["name"]: row["partitions"] for row in json.loads(files["topics.json"])}
    assert len(topics["orders"]) == 2
    assert "num.partitions" in json.loads(files["broker-configs.json"])["1"]
    assert "# TYPE penstock_connections gauge" in files["http-1/metrics.txt"]
    verdicts = {row["name"]: row["verdict"] for row in json.loads(files["doctor.json"])}
    assert verdicts["leaders"] == verdicts["replicas"] == "ok"
