"""The files of the project and how its modules import each other."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.files import files_below

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
PYTHON_FOLDERS = ("src", "simulation", "tests", "bench", "docs", "examples")
TEXT_SUFFIXES = {".py", ".pyx", ".pyi", ".md", ".toml", ".yaml", ".yml", ".sh", ".xml", ".java"}
NOT_OURS = {"__pycache__", "target", "node_modules"}


def files(*folders: str) -> Iterator[Path]:
    """Every file of ours below these folders of the project, in a stable order."""
    for folder in folders:
        yield from files_below(ROOT / folder, _is_ours)


def _is_ours(folder: str) -> bool:
    return folder not in NOT_OURS and not folder.endswith(".egg-info")


def python_files() -> list[Path]:
    found = [path for path in files(*PYTHON_FOLDERS) if path.suffix == ".py"]
    return [*found, ROOT / "setup.py", ROOT / "conftest.py"]


def text_files() -> list[Path]:
    """Everything people read: code, documents, settings, scripts."""
    found = [
        path for path in files(*PYTHON_FOLDERS, "deploy", ".ci") if path.suffix in TEXT_SUFFIXES
    ]
    top = [p for p in sorted(ROOT.iterdir()) if p.is_file() and p.suffix in TEXT_SUFFIXES]
    return [*found, *top, ROOT / "Makefile", ROOT / ".ci" / "run"]


@cache
def parse(path: Path) -> ast.Module:
    """CPython 3.11 can refuse a file with SystemError when a collection runs while it parses."""
    text = path.read_text()
    gc.disable()
    try:
        return ast.parse(text, str(path))
    finally:
        gc.enable()


def show(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    """`src/penstock/log/log.py` is `penstock.log.log`; a package is named without __init__."""
    root = ROOT / "src" if path.is_relative_to(ROOT / "src") else ROOT
    parts = list(path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    return {module_name(path): path for path in files("src", "simulation") if path.suffix == ".py"}


def imports(path: Path, known: set[str]) -> set[str]:
    """The modules among `known` that a file imports, wherever in the file it does so.

    A string that is exactly a module's name counts: that is how modules are named for lazy
    imports.
    """
    found: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found & known
