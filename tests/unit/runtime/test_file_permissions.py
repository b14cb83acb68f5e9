"""Readers of a file, by modes of real files."""

from pathlib import Path

import pytest

from penstock.runtime.file_permissions import Readers, readers_of


@pytest.mark.parametrize(
    ("mode", "readers"),
    [
        (0o600, Readers.OWNER),
        (0o400, Readers.OWNER),
        (0o640, Readers.GROUP),
        (0o440, Readers.GROUP),
        (0o660, Readers.GROUP),
        (0o620, Readers.GROUP),
        (0o644, Readers.EVERY_USER),
        (0o604, Readers.EVERY_USER),
        (0o602, Readers.EVERY_USER),
        (0o666, Readers.EVERY_USER),
    ],
)
def test_readers_follow_the_file_mode(tmp_path: Path, mode: int, readers: Readers) -> None:
    file = tmp_path / "key.pem"
    file.touch()
    file.chmod(mode)
    assert readers_of(str(file), str(tmp_path)) is readers


@pytest.mark.parametrize(
    ("mode", "readers"),
    [
        (0o755, Readers.EVERY_USER),
        (0o711, Readers.EVERY_USER),
        (0o750, Readers.GROUP),
        (0o700, Readers.OWNER),
    ],
)
def test_files_in_a_closed_directory_are_private(
    tmp_path: Path, mode: int, readers: Readers
) -> None:
    directory = tmp_path / "etc" / "keys"
    directory.mkdir(parents=True, mode=0o755)
    file = directory / "key.pem"
    file.touch()
    file.chmod(0o644)
    directory.parent.chmod(mode)
    assert readers_of(str(file), str(tmp_path)) is readers
    link = tmp_path / "link.pem"
    link.symlink_to(file)
    assert readers_of(str(link), str(tmp_path)) is readers, "what it leads to counts"


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        readers_of(str(tmp_path / "none"))
