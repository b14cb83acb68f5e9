"""One retry helper: pauses that double by hand have no jitter, and all nodes come back in step."""

import ast
import re
import textwrap
from collections.abc import Iterator

from tests.tidy.tree import SOURCE, files, parse, show

HOME = SOURCE / "base" / "retry.py"
TIME = re.compile(r"(?:^|_)(?:s|ms|seconds|delay|pause|backoff|wait)(?:_|$)", re.IGNORECASE)
"""Part of a name that says that a value is a duration."""


def doublings(tree: ast.AST) -> Iterator[int]:
    """Lines where a duration is doubled: `p = p * 2`, `p *= 2`, `min(p * 2, P)`, `b * 2**n`."""
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign(ast.Name(name), ast.Mult(), value) if _is_two(value):
                if TIME.search(name):
                    yield node.lineno
            case ast.Assign([ast.Name(name)], value) if TIME.search(name):
                if any(_doubles(part, {name}) for part in ast.walk(value)):
                    yield node.lineno
            case ast.Call(ast.Name("min"), arguments):
                for part in (part for one in arguments for part in ast.walk(one)):
                    names = {n for other in arguments for n in _names(other) if TIME.search(n)}
                    if _doubles(part, names):
                        yield node.lineno
            case ast.BinOp(_, ast.Mult(), _) if any(map(TIME.search, _names(node))):
                if _is_power(node.left) or _is_power(node.right):
                    yield node.lineno


def _doubles(node: ast.AST, names: set[str]) -> bool:
    """True for twice one of these names, or for a power of two next to one of them."""
    match node:
        case ast.BinOp(left, ast.Mult(), right):
            for one, other in ((left, right), (right, left)):
                if _is_two(one) and names & _names(other):
                    return True
        case ast.BinOp(_, ast.Pow(), _):
            return bool(names) and _is_power(node)
    return False


def _is_two(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in (2, 2.0)


def _is_power(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and _is_two(node.left)


def _names(node: ast.AST) -> set[str]:
    found = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
    return found


def test_no_loop_doubles_its_pauses_by_hand() -> None:
    found = [
        f"{show(path)}:{line}"
        for path in files("src")
        if path.suffix == ".py" and path != HOME and "sim" not in path.parts
        for line in sorted(set(doublings(parse(path))))
    ]
    assert not found, f"use penstock.base.retry: {found}"


def test_hand_written_doublings_are_recognized() -> None:
    wrong = """
        pause_s = min(pause_s * 2, PAUSE_MAX)
        pause_seconds *= 2
        delay_ms = min(cap, base_ms * 2.0 ** attempt)
        time.sleep(PAUSE_S * 2**attempt)
        self.resume_at = now() + min(_PAUSE_S_MAX, 2.0 ** (failures - 1))
        self._pause_s = min(2 * self._pause_s, MAX)
    """
    right = """
        capacity = min(capacity * 2, bytes_max)
        deadline_s = time() + session_ms / 1000 + 2 * POLL_SECONDS
        await sleep(uniform(0, 2 * pause_s))
        rows = min(2**31 - 1, count * 2)
        left_s = min(pause_s, deadline_s - now_s)
    """
    assert list(_lines(wrong)) == [1, 2, 3, 4, 5, 6]
    assert list(_lines(right)) == []


def _lines(text: str) -> list[int]:
    return sorted(set(doublings(ast.parse(textwrap.dedent(text).strip()))))
