"""The field's words in code and documentation: words that the house style refuses stay away."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, files, parse, show

FOLDERS = ("src", "simulation", "docs", "tests", "bench", "examples", "tools")
SUFFIXES = {".css", ".go", ".html", ".java", ".js", ".md", ".py", ".pyx", ".toml"}
REFUSED = {
    **dict.fromkeys(
        ("nobody", "somebody", "someone", "whoever", "whomever", "everybody", "anybody"),
        "name the actor: client, leader, controller, consumer, caller",
    ),
    **dict.fromkeys(("onlooker", "onlookers", "stranger", "strangers"), "name the actor"),
    **dict.fromkeys(("door", "doors"), "endpoint, protocol, gateway"),
    **dict.fromkeys(("errand", "errands"), "request, background job"),
    **dict.fromkeys(("courier", "couriers"), "batched RPC"),
    **dict.fromkeys(("seat", "seats", "seated"), "shard runtime, controller"),
    **dict.fromkeys(("burial", "burials", "bury", "buried"), "write dead letters"),
    **dict.fromkeys(("lane", "lanes"), "channel, partition queue"),
    **dict.fromkeys(("siege", "sieges"), "cluster run"),
    **dict.fromkeys(("platter", "platters"), "disk contents"),
    **dict.fromkeys(("room", "rooms"), "capacity, buffer, space"),
    **dict.fromkeys(("wish", "wishes"), "request, update"),
    **dict.fromkeys(("heat",), "partition skew"),
    **dict.fromkeys(("belated",), "late"),
}
"""Refused words and the field's words for the same."""
ALLOWED = {
    ("src/penstock/app/outbox/", "lane"): "columns, tables and parameters of the outbox",
    ("src/penstock/app/outbox/", "lanes"): "the same",
    ("src/penstock/security/audit_entries.py", "door"): "a field of stored audit entries",
    ("src/penstock/cli/security/audit.py", "door"): "the same, and the former name of an option",
    ("src/penstock/gateway/console/routes/audit.py", "door"): "the field of stored audit entries",
    ("src/penstock/gateway/core/", "door"): "the client id and member ids of the gateway",
    ("src/penstock/gateway/core/", "doors"): "names of its channels",
    ("simulation/", "siege"): "seeds of random draws",
    ("docs/how-to/outbox.md", "lane"): "the outbox's term",
    ("docs/how-to/outbox.md", "lanes"): "the same",
    ("docs/reference/python.md", "lanes"): "the same",
    ("docs/reference/glossary.md", "lane"): "the same",
    ("docs/reference/glossary.md", "lanes"): "the same",
    ("tests/unit/app/outbox/", "lane"): "the outbox's term",
    ("tests/unit/app/outbox/", "lanes"): "the same",
    ("tests/chaos/test_outbox.py", "lanes"): "the same",
    ("tests/golden/test_tables.py", "lane"): "the same",
    ("tests/golden/test_tables.py", "lanes"): "the same",
    ("tests/golden/test_messages.py", "buried"): "names of stored samples",
    ("tests/golden/test_messages.py", "errand"): "the same",
    ("tests/golden/test_messages.py", "errands"): "the same",
    ("tests/golden/test_queue_state.py", "buried"): "the same",
    ("tests/golden/test_queue_state.py", "burial"): "the same",
    ("tests/clients/test_audit.py", "door"): "a field of stored audit entries",
    ("tests/unit/broker/api/test_audit_rules.py", "door"): "the same",
    ("tests/unit/security/test_audit_entries.py", "door"): "the same",
    ("tests/sim/test_cluster_copies.py", "siege"): "the seed of random draws",
}
"""Stored or public names that keep such a word, by the beginning of the path."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
IS_NO = re.compile(
    r"(?<!there )(?<!here )\b(?:is|are|was|were) no (?!longer|more\b|later|fewer|less|other\b)",
    re.I,
)
TEST_NAME = re.compile(r"`tests/[\w/]+\.py(::\w+)?`")
NOT_A_NOUN = re.compile(r"(What|Whether|How|Where|Which|Who|Whom|Whose|When|Why|That)\b")


def words_in(text: str) -> Iterator[tuple[int, str]]:
    """Yields the parts of identifiers and prose, in lower case, with their line numbers."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in WORD.findall(line):
            yield number, word.lower()


def is_allowed(name: str, word: str) -> bool:
    return any(name.startswith(start) and word == one for start, one in ALLOWED)


def first_lines(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the texts of docstrings, of constants and fields too, with their line numbers."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            match one:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield one.lineno, text


def texts() -> Iterator[Path]:
    for path in [*files(*FOLDERS), *ROOT.glob("*.md")]:
        if path.suffix in SUFFIXES and path != Path(__file__):
            yield path


def test_code_and_documentation_use_no_refused_word() -> None:
    found = [
        f"{show(path)}:{number}: {word}: write {REFUSED[word]}"
        for path in texts()
        for number, word in words_in(TEST_NAME.sub("", path.read_text()))
        if word in REFUSED and not is_allowed(show(path), word)
    ]
    assert found == []


def test_every_allowed_word_is_still_needed() -> None:
    for start, word in ALLOWED:
        below = [ROOT / start] if (ROOT / start).is_file() else files(start)
        assert any(
            one == word
            for path in below
            if path.suffix in SUFFIXES
            for _, one in words_in(path.read_text())
        ), f"{start} has no {word}"


def test_nothing_is_no_something() -> None:
    found = [
        f"{show(path)}: {line.strip()[:100]}"
        for path in texts()
        for line in path.read_text().splitlines()
        if IS_NO.search(line)
    ]
    assert found == [], "write `is not a`"


@pytest.mark.parametrize(
    "line", ["the body is no JSON", "they are no records", "whoever asks", "self.seat_of(key)"]
)
def test_refused_wording_is_recognized(line: str) -> None:
    assert IS_NO.search(line) or any(word in REFUSED for _, word in words_in(line))


@pytest.mark.parametrize(
    "line", ["there is no topic", "it is no longer led here", "Doorbell()", "classroom"]
)
def test_common_wording_is_accepted(line: str) -> None:
    assert not IS_NO.search(line)
    assert not any(word in REFUSED for _, word in words_in(line))


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    found = [
        f"{show(path)}:{number}: {text.splitlines()[0][:80]}"
        for path in files(*FOLDERS)
        if path.suffix == ".py"
        for number, text in first_lines(parse(path))
        if NOT_A_NOUN.match(text)
    ]
    assert found == []
