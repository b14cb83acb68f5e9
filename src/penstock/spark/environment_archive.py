"""Archive of Penstock and its packages for the machines of a Spark cluster.

    bin/python    script that runs the cluster's Python with lib in PYTHONPATH
    lib/          Penstock, the packages that it needs for Spark, and packages of the user

Spark unpacks it beside each executor (`spark.archives`), and tasks run `./penstock/bin/python`.
PySpark is not part of it: Spark provides its own. Python is not part of it either: the cluster
needs the same minor version, and the same platform, because some packages are compiled. That is
also why `--py-files` cannot carry Penstock.
"""

import io
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import penstock
from penstock.spark.option_values import OptionError

DISTRIBUTION: Final = "penstock-mq"
ROOTS: Final = ("penstock-mq[spark]",)
PROVIDED: Final = frozenset({"pyspark", "py4j"})
"""Distributions that Spark brings."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_OWN_PACKAGES: Final = ("penstock", "pyspark_penstock")

_SCRIPT: Final = """\
#!/bin/sh
# Python of Spark's tasks: the cluster's Python {version} with the packages of this archive.
here=$(cd "$(dirname "$0")/.." && pwd)
base=${{PENSTOCK_BASE_PYTHON:-python{version}}}
command -v "$base" >/dev/null || {{
    echo "penstock: this archive needs Python {version} on every machine; $base is not there." >&2
    echo "penstock: install it, or set PENSTOCK_BASE_PYTHON to its path" >&2
    exit 127
}}
PYTHONPATH=$here/lib${{PYTHONPATH:+:$PYTHONPATH}} exec "$base" "$@"
"""


def pack(
    target: Path,
    *,
    packages: Sequence[str] = (),
    sources: Sequence[Path] = (),
    roots: Sequence[str] = ROOTS,
) -> list[str]:
    """Writes the archive; returns names and versions of its distributions.

    `packages` are further requirements that are installed here, `sources` files or packages of the
    user. Raises OptionError for one that is missing.
    """
    found = _closure((*roots, *packages))
    with tarfile.open(target, "w:gz", compresslevel=6) as archive:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        _add_text(archive, "bin/python", _SCRIPT.format(version=version), mode=0o755)
        for name in _OWN_PACKAGES:
            _add_tree(archive, Path(penstock.__file__).parents[1] / name, f"lib/{name}")
        for one in found.values():
            if _name(one) == DISTRIBUTION:  # Perhaps installed as editable, so without a list.
                folder = f"lib/{DISTRIBUTION.replace('-', '_')}-{one.version}.dist-info"
                _add_text(archive, f"{folder}/METADATA", one.read_text("METADATA") or "")
            else:
                _add_distribution(archive, one)
        for source in sources:
            if not source.exists():
                raise OptionError(f"file not found: {source}")
            _add_tree(archive, source, f"lib/{source.resolve().name}")
    return sorted(f"{name} {one.version}" for name, one in found.items())


def _closure(requirements: Sequence[str]) -> dict[str, Distribution]:
    """Installed distributions that these need, by name, without those that Spark provides."""
    found: dict[str, Distribution] = {}
    done: set[tuple[str, frozenset[str]]] = set()
    waiting = [(_parsed(text), True) for text in requirements]
    while waiting:
        (name, extras), is_required = waiting.pop()
        if name in PROVIDED or (name, extras) in done:
            continue
        done.add((name, extras))
        try:
            one = distribution(name)
        except PackageNotFoundError:
            # Requirements for other platforms and versions of Python are not installed.
            if is_required:
                raise OptionError(f"package {name!r} is not installed here") from None
            continue
        found[name] = one
        for text in one.requires or ():
            wanted = _EXTRA.findall(text)
            if not wanted or extras.intersection(map(_normal, wanted)):
                waiting.append((_parsed(text), False))
    return found


def _parsed(requirement: str) -> tuple[str, frozenset[str]]:
    match = _REQUIREMENT.match(requirement.strip())
    if match is None:
        raise OptionError(f"invalid package name {requirement!r}")
    extras = frozenset(_normal(extra) for extra in (match[2] or "").split(",") if extra.strip())
    return _normal(match[1]), extras


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _name(one: Distribution) -> str:
    return _normal(one.metadata["Name"])


def _add_distribution(archive: tarfile.TarFile, one: Distribution) -> None:
    if one.files is None:
        raise OptionError(f"package {_name(one)!r} has no list of its files: install it by pip")
    for file in one.files:
        # Scripts are outside of site-packages.
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        path = Path(str(one.locate_file(file)))
        if path.is_file():
            archive.add(path, f"lib/{file.as_posix()}", filter=_anonymous)


def _add_tree(archive: tarfile.TarFile, source: Path, name: str) -> None:
    for path in _files(source):
        below = path.relative_to(source).as_posix()
        archive.add(path, name if below == "." else f"{name}/{below}", filter=_anonymous)


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
        return
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".c", ".pyc"):
            yield path


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _add_text(archive: tarfile.TarFile, name: str, text: str, *, mode: int = 0o644) -> None:
    data = text.encode()
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    archive.addfile(info, io.BytesIO(data))
