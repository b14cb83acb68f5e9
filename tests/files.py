"""Files in folders that others write to and delete from just then."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path


def files_below(folder: Path, enters: Callable[[str], bool] = bool) -> Iterator[Path]:
    """Every file, in a stable order; only folders whose names `enters` likes are looked into.

    What goes away while this looks is left out: `Path.rglob` raises for a folder that does.
    """
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(filter(enters, folders))
        yield from (Path(where, name) for name in sorted(names))


def contents_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file with what is in it, but for those that are gone by then."""
    for path in files_below(folder):
        with suppress(FileNotFoundError):
            yield path, path.read_bytes()
