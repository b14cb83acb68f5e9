"""`tools/release/release.py`: what it refuses. `make release` itself builds for minutes."""

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.release.release import (
    COMPILED,
    ReleaseRefused,
    check_tree,
    check_wheel,
    interpreters,
)

Tree = Callable[..., Path]
WANTED = ("penstock/py.typed", "penstock/gateway/console/static/index.html")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A committed project: `tree(version="1.0.0", code="1.0.0", changelog="1.0.0")`."""

    def make(version: str = "1.0.0", code: str = "1.0.0", changelog: str = "1.0.0") -> Path:
        (tmp_path / "src/penstock").mkdir(parents=True)
        (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
        (tmp_path / "src/penstock/__init__.py").write_text(f'__version__ = "{code}"\n')
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {changelog}\n\n## 0.9.0\n")
        for words in (
            ["init", "--quiet"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "all"],
        ):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)
        return tmp_path

    return make


def test_consistent_tree_has_a_version(tree: Tree) -> None:
    assert check_tree(tree(), None, allow_dirty=False) == "1.0.0"


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        ({"code": "1.0.1"}, "does not say version 1.0.0"),
        ({"changelog": "Unreleased"}, "has no section 1.0.0"),
        ({"version": "0.9.0", "code": "0.9.0"}, "begins with 1.0.0"),
    ],
)
def test_inconsistent_version_is_refused(tree: Tree, versions: dict[str, str], reason: str) -> None:
    with pytest.raises(ReleaseRefused, match=reason):
        check_tree(tree(**versions), None, allow_dirty=False)


def test_another_version_than_the_requested_one_is_refused(tree: Tree) -> None:
    with pytest.raises(ReleaseRefused, match=r"not 2\.0\.0"):
        check_tree(tree(), "2.0.0", allow_dirty=False)


def test_open_changes_are_refused(tree: Tree) -> None:
    root = tree()
    (root / "new").write_text("")
    with pytest.raises(ReleaseRefused, match="open changes"):
        check_tree(root, None, allow_dirty=False)
    assert check_tree(root, None, allow_dirty=True) == "1.0.0"


def test_released_version_is_refused(tree: Tree) -> None:
    root = tree()
    subprocess.run(["git", "tag", "v1.0.0"], cwd=root, check=True)
    with pytest.raises(ReleaseRefused, match="released already"):
        check_tree(root, None, allow_dirty=False)


def wheel_of(folder: Path, *names: str) -> Path:
    path = folder / "penstock_mq-1.0.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def test_wheel_needs_its_files_and_compiled_modules(tmp_path: Path) -> None:
    compiled = [f"penstock/wire/{name}.cpython-311.so" for name in COMPILED]
    check_wheel(wheel_of(tmp_path, *WANTED, *compiled))
    with pytest.raises(ReleaseRefused, match="lacks the compiled module"):
        check_wheel(wheel_of(tmp_path, *WANTED, *compiled[:1]))
    with pytest.raises(ReleaseRefused, match=r"lacks penstock/py\.typed"):
        check_wheel(wheel_of(tmp_path, *compiled))
    with pytest.raises(ReleaseRefused, match=r"tests/test_x\.py"):
        check_wheel(wheel_of(tmp_path, *WANTED, *compiled, "tests/test_x.py"))


def test_pythons_found_here_are_supported_ones() -> None:
    found = interpreters()
    assert found
    assert [python.version for python in found] == sorted(python.version for python in found)
