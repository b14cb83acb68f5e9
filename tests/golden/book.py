"""One family of golden samples and the JSON file that holds their bytes.

The file maps each sample's name to its bytes: as text where they are printable text, and as
`0x` and hexadecimal digits otherwise.
"""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
HEX: Final = "0x"
ADVICE: Final = "if that is meant: python -m tests.golden.write [--change]"


@dataclass(frozen=True, slots=True)
class Sample:
    """A value, the bytes that the code under test makes of it, and the way back."""

    name: str
    data: bytes
    value: Any = None
    decode: Callable[[bytes], Any] | None = None
    """None: the bytes are only written, or read by other programs."""

    def __str__(self) -> str:
        return self.name


class Book:
    """The samples of one family."""

    def __init__(self, name: str, make: Callable[[], Iterable[Sample]]) -> None:
        self.name = name
        self._make = make

    @cached_property
    def samples(self) -> list[Sample]:
        samples = list(self._make())
        names = [sample.name for sample in samples]
        assert len(set(names)) == len(names), f"{self.name}: two samples have the same name"
        return samples

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.json"

    def stored(self) -> dict[str, bytes]:
        if not self.path.exists():
            return {}
        return {name: _from_text(text) for name, text in json.loads(self.path.read_text()).items()}

    def check_all(self) -> None:
        """Checks every sample, and that none is lost: for samples that are made when needed."""
        self.check_names()
        for sample in self.samples:
            self.check(sample)

    def check(self, sample: Sample) -> None:
        """Fails if the sample's bytes differ from the stored ones, or are not read back."""
        stored = self.stored()
        assert sample.name in stored, f"{sample.name} is not in {self.path.name}; {ADVICE}"
        data = stored[sample.name]
        assert to_text(sample.data) == to_text(data), f"{sample.name}: the format has changed"
        if sample.decode is not None:
            assert sample.decode(data) == sample.value, f"{sample.name}: read as another value"

    def check_names(self) -> None:
        """Fails if a stored sample is no longer made by the code under test."""
        lost = self.stored().keys() - {sample.name for sample in self.samples}
        assert not lost, f"{self.path.name} has samples that are not made any more: {sorted(lost)}"

    def write(self, *, may_change: bool) -> list[str]:
        """Writes the file; answers the names of samples that are new or have changed."""
        refuse_in_ci()
        stored = self.stored()
        made = {sample.name: sample.data for sample in self.samples}
        news = [name for name, data in made.items() if stored.get(name) != data]
        changed = [name for name in news if name in stored] + sorted(stored.keys() - made.keys())
        if changed and not may_change:
            raise SystemExit(
                f"{self.path.name}: the stored bytes of {', '.join(changed)} would change: older "
                "nodes and data directories have them. Keep the format, or give --change"
            )
        texts = {name: to_text(data) for name, data in made.items()}
        self.path.write_text(json.dumps(texts, indent=0, ensure_ascii=False) + "\n")
        return news + [name for name in changed if name not in made]


def refuse_in_ci() -> None:
    if os.environ.get("CI"):
        raise SystemExit("golden files are written by developers, never in CI")


def to_text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return HEX + data.hex()
    is_plain = all(char.isprintable() or char == "\n" for char in text)
    return text if is_plain and not text.startswith(HEX) else HEX + data.hex()


def _from_text(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix(HEX)) if text.startswith(HEX) else text.encode()
