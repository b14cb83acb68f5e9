"""Every msgspec struct of the package, and every constant text that it stores.

`everything.json` has no names of samples: it holds the encodings of all msgspec structs, with all
fields set, and the texts among the constants of the modules that are not plain identifiers: header
names, keys, endings of files, names of topics. Classes, modules and constants may be renamed at
will; an encoding or a text that is stored and no longer found fails. New ones are added by `python
-m tests.golden.write`.
"""

import importlib
import json
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property
from types import ModuleType
from typing import Any, Final

import msgspec

import penstock
from tests.golden.book import ADVICE, FOLDER, refuse_in_ci, to_text
from tests.golden.filling import full
from tests.golden.structs import import_everything, structs_of

WORD_CHARS_MAX: Final = 100
PROSE: Final = ("penstock.cli", "penstock.testing", "penstock.observability")
"""Packages whose words are for people, or for tests."""


class Net:
    """Stored and current encodings."""

    name = "everything"
    path = FOLDER / "everything.json"

    @cached_property
    def made(self) -> dict[str, Counter[str]]:
        structs = Counter(to_text(_encoded(kind)) for kind in structs_of("penstock"))
        return {"structs": structs, "words": Counter(_words())}

    def stored(self) -> dict[str, Counter[str]]:
        if not self.path.exists():
            return {"structs": Counter(), "words": Counter()}
        return {name: Counter(found) for name, found in json.loads(self.path.read_text()).items()}

    def lost(self, name: str) -> list[str]:
        return sorted((self.stored()[name] - self.made[name]).elements())

    def write(self, *, may_change: bool) -> list[str]:
        refuse_in_ci()
        lost = [*self.lost("structs"), *self.lost("words")]
        if lost and not may_change:
            raise SystemExit(f"{self.path.name}: not found any more, so --change is needed: {lost}")
        news = [one for name, found in self.made.items() for one in found - self.stored()[name]]
        told = {name: sorted(found.elements()) for name, found in self.made.items()}
        self.path.write_text(json.dumps(told, indent=0, ensure_ascii=False) + "\n")
        return news + lost


def _encoded(kind: type[Any]) -> bytes:
    """As JSON, and as msgpack where the JSON is an array."""
    value = full(kind)
    text = msgspec.json.encode(value)
    return text if text[:1] == b"{" else msgspec.msgpack.encode(value)


def _words() -> set[str]:
    words: set[str] = set()
    for module in _modules():
        for name, value in vars(module).items():
            if name.strip("_").isupper():
                words.update(_words_in(value))
    return words


def _modules() -> Iterator[ModuleType]:
    import_everything()
    for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if not found.name.startswith(PROSE) and not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def _words_in(value: object) -> Iterator[str]:
    if isinstance(value, Enum):
        return
    if isinstance(value, bytes):
        value = value.decode("ascii", "ignore")
    if isinstance(value, str):
        if _is_word(value):
            yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _words_in(key)
            yield from _words_in(one)
    elif isinstance(value, tuple | list | set | frozenset):
        for one in value:
            yield from _words_in(one)


def _is_word(text: str) -> bool:
    if not 1 < len(text) <= WORD_CHARS_MAX or not text.isprintable() or " " in text:
        return False
    if text in sys.modules:  # The path of a module that is imported late.
        return False
    # Plain identifiers are as often names in the code as words in files; families have the latter.
    is_identifier = text.isidentifier() and not text.startswith("_")
    return not is_identifier and any(char.isalpha() for char in text)


BOOK: Final = Net()


def test_no_struct_encoding_is_lost() -> None:
    lost = BOOK.lost("structs")
    assert not lost, f"no struct is encoded like this any more; {ADVICE}"


def test_no_constant_is_lost() -> None:
    lost = BOOK.lost("words")
    assert not lost, f"no constant has this value any more; {ADVICE}"
