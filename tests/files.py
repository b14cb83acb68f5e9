"""Files in folders that other processes change at the same time."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path


def files_below(folder: Path, enters: Callable[[str], bool] = bool) -> Iterator[Path]:
    """Every file, in a stable order; folders for which `enters` is false are skipped.

    Files deleted meanwhile are skipped: `Path.rglob` raises for a deleted folder.
    """
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(filter(enters, folders))
        yield from (Path(where, name) for name in sorted(names))


def contents_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file with its contents, except for those deleted by then."""
    for path in files_below(folder):
        with suppress(FileNotFoundError):
            yield path, path.read_bytes()
