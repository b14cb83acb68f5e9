"""The files of `deploy/` are the files of the package, and the package's are installed."""

import tomllib
from importlib.resources import files

from tests.deploy.packaged import DEPLOY
from tests.tidy.tree import ROOT

LINKS = ("grafana", "prometheus")


def test_printed_files_are_those_in_deploy() -> None:
    for name in LINKS:
        shown = (DEPLOY / name).resolve()
        assert shown.is_dir()
        assert str(files("penstock.observability") / name) == str(shown)


def test_every_file_is_in_the_wheel() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["penstock"]
    package = ROOT / "src" / "penstock"
    packed = {path for pattern in patterns for path in package.glob(pattern) if path.is_file()}
    wanted = {path.resolve() for name in LINKS for path in (DEPLOY / name).iterdir()}
    assert len(wanted) >= 6
    assert wanted <= packed


def test_every_file_is_documented() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    for name in LINKS:
        assert all(f"`{name}/{path.name}`" in text for path in (DEPLOY / name).iterdir())
