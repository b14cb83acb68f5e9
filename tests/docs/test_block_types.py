"""Python blocks of the documentation use the names, options and methods of the package as they are.

Blocks that run are tested by running them; others only declare, or use names that the text around
them explains. mypy looks at all of them, and only its findings about names, attributes and
arguments count.
"""

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks

COUNTED = ("attr-defined", "call-arg", "call-overload")
IMPORT = re.compile(r"^(?:from|import) ", re.MULTILINE)
FINDING = re.compile(r"^(block_\d+)\.py:(\d+): error: (.*)\[([a-z-]+)\]$", re.MULTILINE)


def wrapped(text: str) -> str:
    """The block itself, or inside a coroutine if it awaits outside of one."""
    try:
        compile(text, "block", "exec")
    except SyntaxError:
        return "async def block() -> None:\n" + textwrap.indent(text, "    ")
    return text


def in_context(found: list[Block]) -> list[Block]:
    """Blocks that import the package; and after the first of their page, those without imports."""
    contexts: dict[str, str] = {}
    checked = []
    for block in found:
        if "penstock" in block.text:
            contexts.setdefault(block.page, block.text)
            checked.append(block)
        elif block.page in contexts and not IMPORT.search(block.text):
            text = f"{contexts[block.page]}\n{block.text}"
            checked.append(Block(block.page, block.language, text))
    return checked


def findings(checked: list[Block], folder: Path) -> list[str]:
    for number, block in enumerate(checked):
        (folder / f"block_{number}.py").write_text(wrapped(block.text))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent",
         "--check-untyped-defs", "--ignore-missing-imports", "--cache-dir", str(folder / "cache"),
         *[f"block_{number}.py" for number in range(len(checked))]],
        capture_output=True, text=True, check=False, timeout=300, cwd=folder,
        env=os.environ | {"MYPYPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert "Found" in done.stdout or "Success" in done.stdout, done.stdout + done.stderr
    return [
        f"{checked[int(name.removeprefix('block_'))].page}: {told}"
        for name, _, told, code in FINDING.findall(done.stdout)
        if code in COUNTED
    ]


@pytest.fixture(scope="module")
def python_blocks() -> list[Block]:
    found = list(blocks("python"))
    assert len(found) > 50
    return found


def test_blocks_use_names_and_options_that_exist(
    python_blocks: list[Block], tmp_path: Path
) -> None:
    assert findings(in_context(python_blocks), tmp_path) == []


def test_wrong_names_and_options_are_found(tmp_path: Path) -> None:
    wrong = [
        "from penstock import Wurker",
        'from penstock import Worker\nWorker(group="a", threats=3)',
        'from penstock import Client\nclient = Client()\nawait client.publisch("a")',
        "from penstock import Worker\nworker = Worker(group='a')",
        '@worker.task("a", retires=3)\ndef handle(): ...',
    ]
    pages = ["page 0", "page 1", "page 2", "page 3", "page 3"]
    given = [Block(page, "python", text) for page, text in zip(pages, wrong, strict=True)]
    found = findings(in_context(given), tmp_path)
    assert sorted(line.partition(":")[0] for line in found) == pages[:-1]


def test_block_that_awaits_is_wrapped() -> None:
    assert isinstance(ast.parse(wrapped("await one()\n")).body[0], ast.AsyncFunctionDef)
    assert wrapped("x = 1\n") == "x = 1\n"
