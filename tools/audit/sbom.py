"""Writes what Penstock is made of as CycloneDX 1.6 JSON, from what is installed: `make sbom`.

The run-time dependencies and what they depend on, with version, license, and where to find each;
extras that are named are added. The same environment gives the same file, byte by byte.
"""

import argparse
import json
import re
import sys
from importlib import metadata
from pathlib import Path

NAME = "penstock"
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?$")


def components(extras: list[str]) -> dict[str, list[str]]:
    """What each package that is needed depends on, by normal name."""
    found: dict[str, list[str]] = {}
    waiting = [(NAME, tuple(extras))]
    while waiting:
        name, wanted = waiting.pop()
        key = normal(name)
        needs = [row for row in requirements(name, wanted) if is_installed(row[0])]
        known = found.setdefault(key, [])
        for row in needs:
            other = normal(row[0])
            if other not in known:
                known.append(other)
                waiting.append(row)
    return {name: sorted(found[name]) for name in sorted(found)}


def requirements(name: str, extras: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    rows = []
    for line in metadata.requires(name) or ():
        match = REQUIREMENT.match(line)
        assert match is not None, line
        marker = match[3] or ""
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", marker)
        if extra is None or extra[1] in extras:
            wanted = tuple(part.strip() for part in (match[2] or "").split(",") if part.strip())
            rows.append((match[1], wanted))
    return rows


def is_installed(name: str) -> bool:
    """Markers for other platforms name packages that are not here."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def purl(name: str) -> str:
    return f"pkg:pypi/{name}@{metadata.version(name)}"


def component(name: str) -> dict[str, object]:
    about = metadata.metadata(name)
    shown: dict[str, object] = {
        "type": "application" if name == NAME else "library",
        "bom-ref": purl(name),
        "name": name,
        "version": metadata.version(name),
        "purl": purl(name),
    }
    expression = about.get("License-Expression")
    if expression:
        shown["licenses"] = [{"expression": expression}]
    elif about.get("License") and "\n" not in about["License"]:
        shown["licenses"] = [{"license": {"name": about["License"]}}]
    return shown


def document(extras: list[str]) -> dict[str, object]:
    found = components(extras)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(NAME)},
        "components": [component(name) for name in found if name != NAME],
        "dependencies": [
            {"ref": purl(name), "dependsOn": [purl(other) for other in others]}
            for name, others in found.items()
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, help="the file to write; - is standard output")
    parser.add_argument("--extra", action="append", default=[], help="an extra; repeatable")
    given = parser.parse_args()
    text = json.dumps(document(given.extra), indent=2) + "\n"
    if str(given.output) == "-":
        sys.stdout.write(text)
    else:
        given.output.write_text(text)
        print(f"wrote {given.output}")


if __name__ == "__main__":
    main()
