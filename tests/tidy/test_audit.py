"""The tools that audit the project: the bill of materials, and the list of reviewed findings."""

import re
import tomllib

from tests.tidy.tree import ROOT


def test_bill_of_materials_covers_existing_extras() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    recipe = (ROOT / "Makefile").read_text().partition("\nsbom:")[2].partition("\n\n")[0]
    found = re.search(r"install [^\n]*\\\n[^\n]*'\.\[([a-z,]+)\]'", recipe)
    assert found is not None
    assert set(found[1].split(",")) <= extras.keys()
    assert "cyclonedx-py environment" in recipe
    assert any(line.startswith("cyclonedx-bom") for line in extras["dev"])


def test_every_reviewed_finding_has_a_place_and_a_reason() -> None:
    for line in (ROOT / "tools/audit/reviewed.txt").read_text().splitlines():
        if not line.startswith("#"):
            path, rule, count, why = line.split(maxsplit=3)
            assert (ROOT / path).is_file(), path
            assert rule.startswith("B")
            assert int(count) > 0
            assert len(why.split()) > 2
