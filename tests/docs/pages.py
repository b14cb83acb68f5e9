"""Reads the documents: their code blocks and their links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced piece of code and where it stands."""

    page: str
    language: str
    text: str
    title: str = ""


def pages() -> list[Path]:
    top = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "STYLE.md")]
    return [*top, ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> Iterator[Block]:
    for page in pages():
        for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if found[1] == language:
                yield Block(str(page.relative_to(ROOT)), found[1], found[3], found[2] or "")


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """Every call of `program` in a shell block: the page, and the words after the program."""
    for block in blocks("sh"):
        joined = block.text.replace("\\\n", " ")
        for line in joined.splitlines():
            bare = re.sub(r"\s#\s.*$", "", line).strip()
            for call in re.split(r"\s*(?:\||&&)\s*", bare):
                words = call.split()
                if words and words[0] == program:
                    yield block.page, words[1:]


def links() -> Iterator[tuple[Path, str]]:
    """Links to files of the project; code blocks are not prose and have none."""
    for page in pages():
        prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for found in LINK.finditer(prose):
            if "://" not in found[1] and not found[1].startswith(("#", "mailto:")):
                yield page, found[1].partition("#")[0]
