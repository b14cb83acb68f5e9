"""`DirectoryLock`: one process for each data directory, which survives a power cut."""

import os
from pathlib import Path

import pytest

from penstock.runtime.directory_lock import DirectoryLock, InUse


def test_directory_has_one_holder_at_a_time(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    held = DirectoryLock(directory)
    with pytest.raises(InUse, match=f"process {os.getpid()}"):
        DirectoryLock(directory)
    held.release()
    DirectoryLock(directory).release()


def test_every_directory_that_was_made_is_synced_into_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))

    monkeypatch.setattr(os, "fsync", note)
    DirectoryLock(str(tmp_path / "a" / "b")).release()
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    DirectoryLock(str(tmp_path / "a" / "b")).release()
    assert len(synced) == 2, "what was there needs nothing"


def test_created_directory_is_private_to_its_owner(tmp_path: Path) -> None:
    DirectoryLock(str(tmp_path / "a" / "b")).release()
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a").stat().st_mode & 0o077, "others may pass"
    (tmp_path / "open").mkdir(mode=0o755)
    DirectoryLock(str(tmp_path / "open")).release()
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o755, "the operator's own mode stays"
