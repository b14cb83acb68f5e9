"""Topic names by regular expression, through RE2 (KIP-848).

The machine does not bring an engine: the host gives `compile_pattern`, which returns a full-match
test or raises `Refused(INVALID_REGULAR_EXPRESSION)`. RE2 needs linear time, so a pattern may be
run against every topic. What matched is remembered until the topics change.
"""

from collections.abc import Callable
from typing import Final

from penstock.base.errors import ErrorCode, Refused
from penstock.groups.config import Topics

Matcher = Callable[[str], bool]
CompilePattern = Callable[[str], Matcher]

PATTERN_CHARS_MAX: Final = 10_000
REMEMBERED_MAX: Final = 1_000


def refuse_patterns(pattern: str) -> Matcher:
    """For hosts without RE2."""
    raise Refused(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"no engine for regular expressions: {pattern}"
    )


class Patterns:
    """Which of the present topics match a pattern."""

    def __init__(self, compile_pattern: CompilePattern) -> None:
        self._compile = compile_pattern
        self._topics = Topics()
        self._found: dict[str, frozenset[str]] = {}

    def topics_changed(self, topics: Topics) -> None:
        self._topics = topics
        self._found.clear()

    def check(self, pattern: str) -> None:
        """Raises Refused where the pattern cannot be used."""
        if pattern and pattern not in self._found:
            self._match(pattern)

    def matching(self, pattern: str) -> frozenset[str]:
        """A kept pattern that the engine no longer takes matches nothing."""
        if not pattern:
            return frozenset()
        found = self._found.get(pattern)
        if found is None:
            try:
                found = self._match(pattern)
            except Refused:
                found = frozenset()
        return found

    def _match(self, pattern: str) -> frozenset[str]:
        if len(pattern) > PATTERN_CHARS_MAX:
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, "the pattern is too long")
        matches = self._compile(pattern)
        if len(self._found) >= REMEMBERED_MAX:
            self._found.clear()
        found = frozenset(name for name in self._topics.by_name if matches(name))
        self._found[pattern] = found
        return found
