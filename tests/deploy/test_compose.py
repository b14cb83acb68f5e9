"""`deploy/compose` and `deploy/container`: commands and configs that a node takes."""

import tomllib
from typing import Any

import pytest
import yaml

from penstock.cli.server.node import node
from penstock.cli.server.up import parse_pairs
from penstock.node.config import NodeConfig, load
from tests.deploy.packaged import DEPLOY

COMPOSE = DEPLOY / "compose"
IMAGE_CONFIG = DEPLOY / "container" / "node.toml"


def services(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / name).read_text())["services"]
    return found


def nodes() -> dict[str, dict[str, Any]]:
    found = services("three-nodes.yaml")
    return {name: found[name] for name in found if name != "etcd"}


def config_of(service: dict[str, Any]) -> NodeConfig:
    name, *words = service["command"]
    assert name == "node"
    given = node.make_context("node", words).params
    assert given["config"] == "/etc/penstock/cluster.toml"
    flags = {key: given[key] for key in ("node_id", "advertised_host")}
    return load(str(COMPOSE / "cluster.toml"), flags, parse_pairs(given["sets"], "--set"))


def test_three_nodes_differ_in_what_must_differ() -> None:
    configs = [config_of(one) for one in nodes().values()]
    assert [config.node_id for config in configs] == [1, 2, 3]
    for name in ("broker.rack", "listeners", "advertised.listeners"):
        assert len({config.overrides[name] for config in configs}) == 3
    assert len({config.advertised_host for config in configs}) == 3


@pytest.mark.parametrize("service", nodes().values(), ids=nodes())
def test_published_ports_are_those_of_the_node_and_local(service: dict[str, Any]) -> None:
    config = config_of(service)
    outer = config.overrides["advertised.listeners"].rpartition(":")[2]
    kafka, http = service["ports"]
    assert kafka == f"127.0.0.1:{outer}:{outer}"
    assert http.startswith("127.0.0.1:")
    assert http.endswith(f":{config.http_port}")
    assert config.advertised_host == service["hostname"]


def test_volumes_hold_the_data_of_one_node_each() -> None:
    volumes = [one["volumes"][0] for one in nodes().values()]
    assert volumes == [f"{name}:/var/lib/penstock" for name in nodes()]


def test_single_node_publishes_its_ports_on_loopback_only() -> None:
    config = load(str(IMAGE_CONFIG), {}, {})
    (service,) = services("one-node.yaml").values()
    ports = [f"127.0.0.1:{port}:{port}" for port in (config.kafka_port, config.http_port)]
    assert service["ports"] == ports
    assert config.is_insecure, "a container cannot listen on its own loopback"


def test_image_has_the_config_and_user_that_the_others_name() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    assert "COPY deploy/container/node.toml /etc/penstock/node.toml" in text
    assert "USER 10001:10001" in text
    stateful = (DEPLOY / "kubernetes" / "statefulset.yaml").read_text()
    assert "runAsUser: 10001" in stateful
    assert tomllib.loads(IMAGE_CONFIG.read_text())["data"] == "/var/lib/penstock"
