"""Writes the golden files anew: `python -m tests.golden.write [--change] [family ...]`."""

import argparse
import importlib
from typing import Protocol

from tests.golden.book import FOLDER


class Written(Protocol):
    """A golden file with what it is made of."""

    name: str

    def write(self, *, may_change: bool) -> list[str]: ...


def books() -> list[Written]:
    """Of every family."""
    names = [path.stem for path in sorted(FOLDER.glob("test_*.py"))]
    modules = [importlib.import_module(f"tests.golden.{name}") for name in names]
    return [module.BOOK for module in modules if hasattr(module, "BOOK")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.write")
    parser.add_argument("families", nargs="*", help="default: all of them")
    parser.add_argument("--change", action="store_true", help="stored bytes may change or go")
    given = parser.parse_args()
    for book in books():
        if not given.families or book.name in given.families:
            news = book.write(may_change=given.change)
            print(f"{book.name}: {len(news)} new or changed")


if __name__ == "__main__":
    main()
