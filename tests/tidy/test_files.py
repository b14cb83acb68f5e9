"""Walking folders that change meanwhile."""

import shutil
from pathlib import Path

from tests.files import contents_below, files_below


def test_files_deleted_during_the_walk_are_skipped(tmp_path: Path) -> None:
    for folder in "abc":
        (tmp_path / folder).mkdir()
        for name in ("1", "2"):
            (tmp_path / folder / name).write_text(folder + name)
    found = contents_below(tmp_path)
    assert next(found) == (tmp_path / "a" / "1", b"a1")
    (tmp_path / "a" / "2").unlink()
    shutil.rmtree(tmp_path / "b")
    assert list(found) == [(tmp_path / "c" / name, b"c%b" % name.encode()) for name in ("1", "2")]


def test_excluded_folders_are_not_walked(tmp_path: Path) -> None:
    for name in ("keep/x", "leave/x", "keep/leave/x", "y"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    found = files_below(tmp_path, lambda name: name != "leave")
    assert [str(path.relative_to(tmp_path)) for path in found] == ["y", "keep/x"]
