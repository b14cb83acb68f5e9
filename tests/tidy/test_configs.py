"""Every config of the table is read, or marked as having no effect."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from penstock.cluster.configs.config_table import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from penstock.cluster.configs.config_types import Config
from tests.tidy.tree import SOURCE, modules, parse

ALL = (*TOPIC_CONFIGS, *GROUP_CONFIGS, *BROKER_CONFIGS)
TABLE = SOURCE / "cluster" / "configs" / "config_table.py"
OTHERS = tuple(
    f"penstock.{layer}."
    for layer in ("cli", "jobs", "observability", "pipelines", "spark", "testing")
)
"""Modules that mention configs and do not obey them."""
LETTERS_MIN = 8
"""Of a name that is put together: fewer could be part of any."""


@cache
def spelled() -> tuple[frozenset[str], "re.Pattern[str]"]:
    """The names in the code that obeys configs, and a pattern for those put together there."""
    names: set[str] = set()
    patterns: list[str] = []
    for name, path in modules().items():
        if path == TABLE or name.startswith(OTHERS) or not path.is_relative_to(SOURCE):
            continue
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                patterns.extend(_pattern(node))
    return frozenset(names), re.compile("|".join(patterns))


def _pattern(node: ast.JoinedStr) -> Iterator[str]:
    texts = [part.value for part in node.values if isinstance(part, ast.Constant)]
    known = "".join(str(text) for text in texts)
    if len(re.sub(r"[^a-z]", "", known)) >= LETTERS_MIN and re.fullmatch(r"[a-z.]+", known):
        yield "".join(
            re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"[a-z0-9.]+"
            for part in node.values
        )


def is_read(name: str) -> bool:
    names, patterns = spelled()
    return name in names or patterns.fullmatch(name) is not None


def is_obeyed(config: Config) -> bool:
    """True if the config itself is read, or the one it is a synonym of."""
    stands_in_for = [
        other.name for other in ALL if config.name in [synonym.name for synonym in other.synonyms]
    ]
    return any(map(is_read, (config.name, *stands_in_for)))


def test_every_config_is_read_or_marked_inert() -> None:
    unread = [config.name for config in ALL if not config.is_inert and not is_obeyed(config)]
    assert unread == [], "obey them, or mark them as inert"


def test_inert_configs_are_not_read() -> None:
    names, _ = spelled()
    read = [config.name for config in ALL if config.is_inert and config.name in names]
    assert read == [], "they have an effect: do not mark them as inert"
