"""The distribution is `penstock-mq`: no text tells a user to install `penstock`, another project.

See docs/adr/0038-distribution-name.md.
"""

import re
import tomllib
from functools import cache
from typing import Any

import pytest

from tests.tidy.tree import ROOT, files, show, text_files

NAME = "penstock-mq"
# Spelled in two halves, so that this file keeps its own rule.
FORMER = "pen" + "stock"
INSTALLED = re.compile(
    rf"\bpip\d? (?:install|wheel|download)\b[^`\n]*?(?<![\w./-]){FORMER}(?![\w.-])"
)
METADATA = re.compile(
    rf"\b(?:version|metadata|requires|distribution|files)\(\s*[\"']{FORMER}[\"'[]"
)
PROJECT_PAGE = re.compile(rf"pypi\.org/project/{FORMER}(?![\w-])")


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
    return found


@cache
def with_extras() -> re.Pattern[str]:
    extras = "|".join(project()["optional-dependencies"])
    return re.compile(rf"(?<![\w-]){FORMER}\[(?:{extras})[,\]]")


def names_former(line: str) -> bool:
    if FORMER not in line:
        return False
    rules = (INSTALLED, METADATA, PROJECT_PAGE, with_extras())
    return any(rule.search(line) for rule in rules)


@pytest.mark.parametrize(
    "line",
    [
        f"pip install {FORMER}",
        f"pip install -U '{FORMER}'",
        f"pip install '{FORMER}==0.1.0'",
        f'python -m pip install --pre "{FORMER}[spark]"',
        f"needs {FORMER}[otel]",
        f"`{FORMER}[outbox,postgres]`",
        f"importlib.metadata.version('{FORMER}')",
        f"https://pypi.org/project/{FORMER}/",
    ],
)
def test_former_name_is_noticed(line: str) -> None:
    assert names_former(line)


@pytest.mark.parametrize(
    "line",
    [
        f"pip install {NAME}",
        f"pip install '{NAME}[spark,connect]'",
        "A message broker you `pip install`: penstock is one process",
        "penstock up",
        "import penstock",
        "pip install -e ./penstock-data",
        f"https://pypi.org/project/{NAME}/",
    ],
)
def test_right_name_is_accepted(line: str) -> None:
    assert not names_former(line)


def test_no_text_names_the_former_distribution() -> None:
    paths = [*text_files(), *files("tools", "bin"), ROOT / "mkdocs.yml"]
    found = [
        f"{show(path)}:{number} {line.strip()}"
        for path in paths
        if path.is_file()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if names_former(line)
    ]
    assert not found, f"the distribution is {NAME}: {found}"


def test_project_and_its_extras_have_the_name() -> None:
    about = project()
    assert about["name"] == NAME
    own = [
        line
        for lines in about["optional-dependencies"].values()
        for line in lines
        if line.startswith(FORMER)
    ]
    assert own
    assert all(line.startswith(f"{NAME}[") for line in own), own
