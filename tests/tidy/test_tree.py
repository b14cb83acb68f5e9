"""Rules of the source tree, each as a test over every file."""

import ast
import re
import tomllib
from collections import Counter, defaultdict

import penstock
from penstock.broker.api.routes import ROUTES
from penstock.wire.messages import REQUESTS, RESPONSES
from tests.tidy.tree import (
    ROOT,
    SOURCE,
    files,
    imports,
    modules,
    parse,
    python_files,
    show,
    text_files,
)

LINES_MAX = 800
FUNCTION_LINES_MAX = 80
TABLES = {"src/penstock/cluster/configs/config_table.py"}
"""One row after another, looked up and never read from top to bottom."""
COLUMNS_MAX = 100
DOCSTRING_CHARACTERS_MIN = 20
FOLDER_FILES_MAX = 25
SAME_NAMES_MAX = 10
"""Public classes may share a name if they are the same idea on two sides of a protocol."""
BANNED_SUFFIXES = ("Manager", "Helper", "Helpers", "Util", "Utils", "Impl", "Service", "Base")
# Spelled in two halves, so that this file keeps its own rule.
REMINDERS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.~}])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me|Us" + r"ers)/\w")
SWALLOWS = {
    "src/penstock/app/task_runner.py",
    "src/penstock/app/retry_topics.py",
    "src/penstock/pipelines/steps.py",
    "src/penstock/broker/server/connection.py",
    "src/penstock/client/connection.py",
    "src/penstock/runtime/workers.py",
    "simulation/transport.py",
}
"""The connection loops, where whatever a peer provokes ends that connection and nothing else, and
what carries errors on by other means: from a thread to the loop, as asyncio's own loop does, or as
the verdict about a message or a row that a user's function failed with."""
ROOTS = (
    "penstock",
    "penstock.cli.main",
    "penstock.client",
    "penstock.app.dedup_stores",
    "penstock.app.limiter",
    "penstock.app.outbox",
    "penstock.app.retry_topics",
    "penstock.app.salting",
    "penstock.app.sync",
    "penstock.integrations.celery",
    "penstock.pipelines",
    "penstock.testing",
    "penstock.testing.plugin",
    "pyspark_penstock",
)
"""Modules that people start or import; all others must be reachable from these, or simulate."""


def test_every_module_has_a_docstring() -> None:
    silent = [
        show(path)
        for path in python_files()
        if path.stat().st_size or path.is_relative_to(SOURCE)
        if len(ast.get_docstring(parse(path)) or "") < DOCSTRING_CHARACTERS_MIN
    ]
    assert not silent, f"no docstring, or one that says nothing: {silent}"


def test_file_length_is_limited() -> None:
    lengths = {show(path): len(path.read_text().splitlines()) for path in python_files()}
    long = {name: n for name, n in lengths.items() if n > LINES_MAX and name not in TABLES}
    assert not long


def test_functions_fit_a_screen() -> None:
    long = []
    for path in files("src"):
        if path.suffix != ".py":
            continue
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    long.append(f"{show(path)}:{node.lineno} {node.name} has {length} lines")
    assert not long


def test_folders_are_small() -> None:
    counts = Counter(show(path.parent) for path in files("src") if path.suffix == ".py")
    assert {name: count for name, count in counts.items() if count > FOLDER_FILES_MAX} == {}


def test_public_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path in files("src"):
        if path.suffix == ".py":
            for node in parse(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(show(path))
    repeated = {name: where for name, where in places.items() if len(where) > 1}
    assert len(repeated) <= SAME_NAMES_MAX, repeated


def test_line_width_is_limited() -> None:
    """ruff sees to Python; this to what it does not read."""
    wide = [
        f"{show(path)}:{number}"
        for path in text_files()
        if path.suffix in {".pyx", ".toml", ".yml", ".yaml"}
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]
    assert not wide


def test_vague_names_are_refused() -> None:
    vague = []
    for path in python_files():
        stem = "".join(word.title() for word in path.stem.split("_"))
        if stem.endswith(BANNED_SUFFIXES):
            vague.append(show(path))
        vague += [
            f"{show(path)}: {node.name}"
            for node in ast.walk(parse(path))
            if isinstance(node, ast.ClassDef) and node.name.endswith(BANNED_SUFFIXES)
        ]
    assert not vague, f"name it for what it does: {vague}"


def test_every_module_is_used() -> None:
    known = modules()
    names = set(known)
    reached: set[str] = set()
    waiting = [name for name in (*ROOTS, *names) if name in ROOTS or name.startswith("simulation")]
    waiting = [name for name in waiting if name in names]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += sorted(imports(known[name], names) - reached)
        parent = name.rpartition(".")[0]
        if parent:
            waiting.append(parent)
    # A package counts when any of its modules does, whether or not its __init__ is named.
    assert sorted(names - reached) == []


def test_simulated_parts_are_used_by_a_test() -> None:
    names = {name for name in modules() if name.startswith("simulation.")}
    used: set[str] = set()
    for path in files("simulation", "tests"):
        if path.suffix == ".py":
            used |= imports(path, names)
    # A package is used when any of its modules is.
    used |= {name.rpartition(".")[0] for name in used}
    assert sorted(names - used) == []


def test_no_reminders_are_left() -> None:
    left = [
        f"{show(path)}:{number}"
        for path in text_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if REMINDERS.search(line)
    ]
    assert not left, f"open an issue, or do it: {left}"


def test_no_machine_path_is_in_the_tree() -> None:
    found = [
        f"{show(path)}:{number}"
        for path in text_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert not found


def test_unit_tests_mirror_the_packages() -> None:
    """A test file is in the folder of the package that it tests, beside the tests of its kin."""
    strays = []
    for path in files("tests/unit"):
        inside = path.relative_to(ROOT / "tests" / "unit")
        if not path.name.startswith("test_") or path.suffix != ".py":
            continue
        folder = (ROOT if inside.parts[0] == "simulation" else SOURCE) / inside.parent
        if not any(folder.glob("*.py*")):
            strays.append(show(path))
    assert not strays, f"no package of that name: {strays}"


def test_broad_exceptions_are_caught_only_where_allowed() -> None:
    swallowing = {
        show(path)
        for path in files("src")
        if path.suffix == ".py" and "/cli/" not in str(path)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ExceptHandler)
        and isinstance(node.type, ast.Name)
        and node.type.id in ("Exception", "BaseException")
        and not _passes_on(node)
    }
    assert swallowing <= SWALLOWS


def _passes_on(handler: ast.ExceptHandler) -> bool:
    """True when the caught error is raised again or handed to a waiter."""
    return any(
        isinstance(node, ast.Raise)
        or (isinstance(node, ast.Attribute) and node.attr == "set_exception")
        for node in ast.walk(handler)
    )


def test_version_is_the_same_everywhere() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    assert penstock.__version__ == version
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_declared_api_has_exactly_one_route() -> None:
    keys = [route.key for route in ROUTES]
    assert len(keys) == len(set(keys))
    assert set(keys) == set(REQUESTS)
    assert set(REQUESTS) == set(RESPONSES)


def test_routes_speak_declared_versions_only() -> None:
    for route in ROUTES:
        low, high = route.versions
        declared_low, declared_high = route.request.WIRE.versions
        assert declared_low <= low <= high <= declared_high, route.name
