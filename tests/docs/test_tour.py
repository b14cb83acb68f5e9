"""The tour is what its script writes, and its commands still do what its pictures show."""

import html
import re
import shutil
from pathlib import Path

import pytest

from tests.docs import tour
from tests.docs.pages import ROOT

IMAGES = ROOT / "docs" / "images"


def test_tour_is_up_to_date() -> None:
    assert (ROOT / "docs" / "tour.md").read_text(encoding="utf-8") == tour.page(), "run `make tour`"


def test_every_picture_of_the_tour_shows_its_commands() -> None:
    for part in tour.PARTS:
        if isinstance(part, tour.Run | tour.Seen | tour.Looked):
            assert (IMAGES / tour.file_of(part)).exists(), "run `make tour`"
        if isinstance(part, tour.Run):
            shown = _text(IMAGES / tour.file_of(part))
            for command in part.commands:
                assert f"${_squeezed(command)}" in shown, f"{part.picture}: run `make tour`"


def test_pictures_of_terminals_load_nothing_from_elsewhere() -> None:
    for path in IMAGES.glob("tour-*.svg"):
        assert "url(http" not in path.read_text(encoding="utf-8")


def _text(picture: Path) -> str:
    """Text of a picture, without spaces and breaks of lines."""
    found = re.findall(
        r'<text [^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>',
        picture.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    ordered = sorted(found, key=lambda one: (float(one[1]), float(one[0])))
    # The title of the window is drawn among the first lines.
    words = [html.unescape(text) for _, _, text in ordered if text.strip() != "penstock"]
    return _squeezed("".join(words))


def _squeezed(text: str) -> str:
    return re.sub(r"\s", "", text.replace("\\\n", "").replace("\xa0", ""))


@pytest.mark.clients
def test_commands_of_the_tour_run(tmp_path: Path) -> None:
    """Without Spark and the cluster, which have tests of their own; without a browser."""
    assert shutil.which("kcat"), "run `make tools`"
    tour.guide_alone(tmp_path, tmp_path / "images", None, spark=False)
    drawn = {path.name for path in (tmp_path / "images").iterdir()}
    pictures = [part for part in tour.ALONE if isinstance(part, tour.Run | tour.Seen)]
    assert drawn == {tour.file_of(part) for part in pictures}
