"""Names in the documentation exist: targets, commands, options, links, files."""

import ast
import re
import tomllib

import pytest

from docs import gen
from penstock.cluster.configs.config_table import BROKER_CONFIGS, TOPIC_CONFIGS
from tests.docs.pages import ROOT, Block, blocks, commands, links, pages
from tests.tidy.tree import files

ARCHITECTURE_BYTES_MAX = 20 << 10
SOURCE_FILE = re.compile(r"`([\w/-]+\.(?:py|pyx|js))`")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


def test_every_make_target_in_the_docs_exists() -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text()))
    shown = {words[0] for _, words in commands("make") if words}
    assert {"up", "test"} <= shown
    assert shown <= targets, shown - targets


def test_every_make_target_is_documented() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)).split()
    explained = re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)
    assert sorted(phony) == sorted(explained)


def test_every_command_in_the_docs_exists_with_its_options() -> None:
    tree = {path[1:]: command for path, command in gen.commands()}
    seen = 0
    for page, words in commands("penstock"):
        path = next((p for p in _prefixes(words) if p in tree), None)
        assert path is not None, f"{page}: no command penstock {' '.join(words)}"
        known = {name for param in tree[path].params for name in param.opts + param.secondary_opts}
        used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= known | {"--help"}, (
            f"{page}: penstock {' '.join(path)} has no {used - known}"
        )
        seen += 1
    assert seen > 5


def _prefixes(words: list[str]) -> list[tuple[str, ...]]:
    return [tuple(words[:length]) for length in range(min(3, len(words)), 0, -1)]


def test_every_config_in_the_docs_exists() -> None:
    known = {config.name for config in (*TOPIC_CONFIGS, *BROKER_CONFIGS)}
    shown = {
        words[at + 1].partition("=")[0]
        for _, words in commands("penstock")
        for at, word in enumerate(words)
        if word in ("--set", "--config") and "=" in words[at + 1]
    }
    assert shown
    assert shown <= known, shown - known


@pytest.mark.parametrize("block", list(blocks("python")), ids=lambda block: block.page)
def test_every_python_block_compiles(block: Block) -> None:
    ast.parse(block.text)


def test_every_link_has_a_target() -> None:
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page, target in links()
        if target and not (page.parent / target).exists()
    ]
    assert not broken


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    inside = [page for page in pages() if page.is_relative_to(ROOT / "docs")]
    lost = [str(p.relative_to(ROOT / "docs")) for p in inside]
    assert [name for name in lost if name not in navigation] == []


def test_every_decision_is_listed_and_numbered_in_order() -> None:
    folder = ROOT / "docs" / "adr"
    names = sorted(path.name for path in folder.glob("0*.md"))
    assert len({name[:4] for name in names}) == len(names), "a number is taken twice"
    index = (folder / "index.md").read_text()
    for name in names:
        assert f"({name})" in index
        text = (folder / name).read_text()
        assert text.startswith(f"# {name[:4]} ")
        for heading in ("## Context", "## Decision", "## Consequences"):
            assert heading in text, name


def test_every_dependency_is_justified() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    text = (ROOT / "docs" / "adr" / "0003-dependencies.md").read_text()
    names = [re.split(r"[<>=\[; ]", line)[0] for line in project["dependencies"]]
    assert [name for name in names if name not in text] == []


def test_architecture_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    source = ROOT / "src" / "penstock"
    packages = [path.parent.relative_to(source) for path in source.rglob("__init__.py")]
    top = sorted({package.parts[0] for package in packages if package.parts})
    assert [name for name in top if f"`{name}/`" not in text] == []


def test_every_source_file_in_pages_for_contributors_exists() -> None:
    names = {str(path) for path in files("src", "simulation", "tests", "docs", "tools", "bench")}
    pages = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "STYLE.md")]
    missing = [
        f"{page.name}: {name}"
        for page in [*pages, *(ROOT / "docs" / "internals").glob("*.md")]
        for name in SOURCE_FILE.findall(page.read_text())
        if not any(known.endswith(f"/{name}") for known in (*names, str(ROOT / "conftest.py")))
    ]
    assert missing == []


def test_architecture_is_read_in_one_sitting() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_bytes()) <= ARCHITECTURE_BYTES_MAX


def test_every_security_promise_has_an_existing_test() -> None:
    text = (ROOT / "docs/internals/security-checklist.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) >= 40
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(), f"{path} has no {test}"
    rows = [line for line in text.splitlines() if line.startswith("| ") and "Promise" not in line]
    assert len(rows) == len(named), "a promise without a test"


def test_every_rule_for_lost_state_names_tests_that_exist() -> None:
    text = (ROOT / "docs/internals/on-disk.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) >= 25
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(), f"{path} has no {test}"
