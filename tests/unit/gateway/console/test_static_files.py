"""Static files: complete, small, without foreign resources or markup from text."""

import re

import pytest

from penstock.gateway.console.static_files import FOLDER, MEDIA_TYPES, read_all

SCRIPTS = sorted(path for path in FOLDER.rglob("*.js"))
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment"
    r"|srcdoc|\beval\(|new Function|setHTML"
)
ELSEWHERE = re.compile(r"https?://(?!www\.w3\.org/)")
IMPORTS = re.compile(r'from "(\.[^"]+)"')


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_never_create_markup_from_text(path) -> None:  # type: ignore[no-untyped-def]
    assert not MARKUP.findall(path.read_text())


def test_files_load_no_foreign_resources() -> None:
    for path in FOLDER.rglob("*"):
        if path.is_file():
            assert not ELSEWHERE.findall(path.read_text()), path.name


def test_every_import_resolves_to_a_file() -> None:
    for path in SCRIPTS:
        for name in IMPORTS.findall(path.read_text()):
            assert (path.parent / name).is_file(), f"{path.name} imports {name}"


def test_every_file_is_served_and_small() -> None:
    assets = read_all()
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert len(assets) == len(files)
    assert {path.suffix for path in files} <= set(MEDIA_TYPES)
    assert sum(len(asset.body) for asset in assets.values()) < 256 * 1024
    assert len({asset.etag for asset in assets.values()}) == len(assets)


def test_scripts_are_short() -> None:
    assert all(len(path.read_text().splitlines()) <= 500 for path in SCRIPTS)
