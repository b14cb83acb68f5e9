"""`deploy/kubernetes`: manifests of valid kinds and fields that agree with each other."""

import subprocess
import tomllib
from typing import Any

import kubernetes_validate
import pytest
import yaml

from penstock import __version__
from penstock.cli.server.node import node
from penstock.node.config import load
from tests.deploy.packaged import DEPLOY

FOLDER = DEPLOY / "kubernetes"
VERSIONS = ("1.30", "1.34")
"""The oldest and newest Kubernetes for which the manifests are checked."""
LISTED = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
APP = {"app.kubernetes.io/name": "penstock"}


def manifests() -> list[dict[str, Any]]:
    texts = [(FOLDER / name).read_text() for name in LISTED["resources"]]
    return [one for text in texts for one in yaml.safe_load_all(text)]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [one for one in manifests() if one["kind"] == kind]


def container() -> dict[str, Any]:
    (stateful,) = of_kind("StatefulSet")
    (found,) = stateful["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_match_the_schemas_of_kubernetes(version: str) -> None:
    for one in manifests():
        kubernetes_validate.validate(one, version, strict=True)


def test_misspelt_field_would_be_noticed() -> None:
    (budget,) = of_kind("PodDisruptionBudget")
    budget["spec"]["maxUnavailabel"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(budget, VERSIONS[0], strict=True)


def test_every_file_is_listed_or_an_example() -> None:
    listed = {*LISTED["resources"], "kustomization.yaml", "node.toml", "keda.yaml"}
    assert {path.name for path in FOLDER.iterdir()} == listed


def test_selectors_find_the_pods() -> None:
    (stateful,) = of_kind("StatefulSet")
    assert stateful["spec"]["template"]["metadata"]["labels"] == APP
    selectors = [one["spec"]["selector"] for one in of_kind("Service")]
    selectors += [stateful["spec"]["selector"]["matchLabels"]]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in of_kind("PodDisruptionBudget")]
    assert selectors == [APP] * 4


def test_nodes_start_with_the_config_and_their_names() -> None:
    (command,) = [part for part in container()["command"] if "penstock node" in part]
    command = command.replace("/etc/penstock/config", str(FOLDER)).replace("exec penstock ", "")
    names = {"POD_NAME": "penstock-2", "POD_NAMESPACE": "blue"}
    words = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {command}"],
        env=names,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert words.pop(0) == "node"
    given = node.make_context("node", words).params
    flags = {name: given[name] for name in ("node_id", "advertised_host")}
    config = load(given["config"], flags, {})
    assert (config.node_id, config.advertised_host) == (3, "penstock-2.penstock.blue.svc")
    assert not config.is_insecure


def test_ports_and_files_of_the_config_exist() -> None:
    config = tomllib.loads((FOLDER / "node.toml").read_text())
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert config["listeners"].endswith(f":{ports['kafka']}")
    assert config["http-port"] == ports["https"]
    for service in of_kind("Service"):
        assert {port["name"]: port["port"] for port in service["spec"]["ports"]} == ports
    mounts = [mount["mountPath"] for mount in container()["volumeMounts"]]
    for name in ("ssl.keystore.location", "admin.password.file", "data"):
        assert any(config[name] == path or config[name].startswith(path + "/") for path in mounts)


def test_probes_ask_the_health_routes_over_tls() -> None:
    probes = {name: container()[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness")}
    assert {probe["path"] for probe in probes.values()} == {"/healthz"}
    ready = container()["readinessProbe"]["httpGet"]
    assert (ready["path"], ready["scheme"]) == ("/readyz", "HTTPS")


def test_image_is_of_this_version() -> None:
    (image,) = LISTED["images"]
    assert image == {"name": container()["image"], "newTag": __version__}
