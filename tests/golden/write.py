"""Writes the golden files anew: `python -m tests.golden.write [--change] [family ...]`."""

import argparse
import importlib

from tests.golden.book import FOLDER, Book


def books() -> list[Book]:
    """Of every family."""
    found = []
    for path in sorted(FOLDER.glob("test_*.py")):
        book = getattr(importlib.import_module(f"tests.golden.{path.stem}"), "BOOK", None)
        if isinstance(book, Book):
            found.append(book)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.write")
    parser.add_argument("families", nargs="*", help="default: all of them")
    parser.add_argument("--change", action="store_true", help="stored bytes may change or go")
    given = parser.parse_args()
    for book in books():
        if not given.families or book.name in given.families:
            news = book.write(may_change=given.change)
            print(f"{book.name}: {len(book.samples)} samples, {len(news)} of them written anew")


if __name__ == "__main__":
    main()
