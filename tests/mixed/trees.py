"""Checkouts of two commits, each with a way to run its nodes.

The older one is a git worktree that is removed at the end. Its compiled modules are copied from
this tree where their sources are the same, and built otherwise.
"""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COMPILED: Final = "src/penstock/wire"


@dataclass(frozen=True)
class Tree:
    """A checkout."""

    root: Path
    name: str

    @property
    def source(self) -> Path:
        return self.root / "src"

    def prefix(self) -> Sequence[str]:
        """Goes before the command `penstock`, and has this tree's code run instead of it."""
        project = tomllib.loads((self.root / "pyproject.toml").read_text())["project"]
        module, _, function = project["scripts"]["penstock"].partition(":")
        code = (
            f"import sys; del sys.argv[0]; from {module} import {function}; "
            f"print('code of', sys.modules['penstock'].__file__, flush=True); {function}()"
        )
        return ["env", f"PYTHONPATH={self.source}", sys.executable, "-P", "-c", code]

    def is_run_by(self, log: str) -> bool:
        """True if a node with this log ran this tree's code at its last start."""
        return log.rpartition("code of ")[2].startswith(str(self.source / "penstock") + "/")


NEW: Final = Tree(ROOT, "new")


@contextmanager
def checkout(commit: str, folder: Path) -> Iterator[Tree]:
    """The tree of another commit, in a folder that does not exist yet."""
    _git("worktree", "add", "--quiet", "--detach", str(folder), commit)
    try:
        _compile(folder)
        yield Tree(folder, "old")
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _compile(folder: Path) -> None:
    sources = sorted(path.name for path in (ROOT / COMPILED).glob("*.pyx"))
    theirs = folder / COMPILED
    is_same = sources == sorted(path.name for path in theirs.glob("*.pyx")) and all(
        (ROOT / COMPILED / name).read_bytes() == (theirs / name).read_bytes() for name in sources
    )
    compiled = sorted((ROOT / COMPILED).glob("*.so"))
    if is_same:  # Without compiled modules here there are none there: the twins in Python serve.
        for path in compiled:
            shutil.copy2(path, theirs / path.name)
        return
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, check=True)


def _git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True)
