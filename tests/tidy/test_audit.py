"""The tools that audit us: the bill of materials is whole, and the reviewed list says why."""

import json
import subprocess
import sys
import tomllib
from typing import Any

from tests.tidy.tree import ROOT


def bill() -> dict[str, Any]:
    command = [sys.executable, "tools/audit/sbom.py", "-", "--extra", "security"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_bill_of_materials_names_every_dependency_and_what_it_brings() -> None:
    found = bill()
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    names = {one["name"] for one in found["components"]}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    direct = {line.partition(">")[0].lower() for line in declared}
    assert direct <= names
    assert {"cryptography", "anyio"} <= names, "extras, and what dependencies depend on"
    assert not {"pytest", "pyspark"} & names
    refs = {one["bom-ref"] for one in (*found["components"], found["metadata"]["component"])}
    for row in found["dependencies"]:
        assert {row["ref"], *row["dependsOn"]} <= refs
    assert bill() == found, "the same environment gives the same bill"


def test_every_reviewed_finding_says_where_and_why() -> None:
    for line in (ROOT / "tools/audit/reviewed.txt").read_text().splitlines():
        if not line.startswith("#"):
            path, rule, count, why = line.split(maxsplit=3)
            assert (ROOT / path).is_file(), path
            assert rule.startswith("B")
            assert int(count) > 0
            assert len(why.split()) > 2
