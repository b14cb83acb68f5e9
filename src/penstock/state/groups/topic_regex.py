"""Topic names by regular expression, through RE2 (KIP-848).

The machine does not bring an engine: the host gives `compile_pattern`, which returns a full-match
test or raises `Refused(INVALID_REGULAR_EXPRESSION)`. RE2 needs linear time, so a pattern may be
run against every topic. What matched is remembered until the topics change.

A pattern finds only what its member may see: else whoever may join a group would be given
partitions of topics that it can neither read nor even know of, and nobody would read them. The
host gives `may_see`, too, and says when rights have changed (`topics_changed`).
"""

from collections.abc import Callable
from typing import Final

from penstock.base.errors import ErrorCode, Refused
from penstock.state.groups.config import TopicCatalogue

NameMatcher = Callable[[str], bool]
CompilePattern = Callable[[str], NameMatcher]
MaySee = Callable[[str, str, str], bool]
"""Principal, address, topic."""

PATTERN_CHARS_MAX: Final = 10_000
REMEMBERED_MAX: Final = 1_000


def refuse_patterns(pattern: str) -> NameMatcher:
    """For hosts without RE2."""
    raise Refused(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"no engine for regular expressions: {pattern}"
    )


def see_everything(principal: str, address: str, topic: str) -> bool:
    """For hosts without rights."""
    return True


class Patterns:
    """Which of the present topics match a pattern."""

    def __init__(self, compile_pattern: CompilePattern, may_see: MaySee = see_everything) -> None:
        self._compile = compile_pattern
        self._may_see = may_see
        self._topics = TopicCatalogue()
        self._found: dict[str, frozenset[str]] = {}
        self._seen: dict[tuple[str, str, str], frozenset[str]] = {}

    def topics_changed(self, topics: TopicCatalogue) -> None:
        """Or the rights to them."""
        self._topics = topics
        self._found.clear()
        self._seen.clear()

    def check(self, pattern: str) -> None:
        """Raises Refused where the pattern cannot be used."""
        if pattern and pattern not in self._found:
            self._match(pattern)

    def matching(self, pattern: str, principal: str, client_host: str) -> frozenset[str]:
        """A kept pattern that the engine no longer takes matches nothing.

        Of members that an earlier version has kept it is not known who they are.
        """
        if not pattern:
            return frozenset()
        if not principal:
            return self._matching(pattern)
        key = (pattern, principal, client_host)
        seen = self._seen.get(key)
        if seen is None:
            address = client_host.removeprefix("/")
            seen = frozenset(
                name for name in self._matching(pattern) if self._may_see(principal, address, name)
            )
            if len(self._seen) >= REMEMBERED_MAX:
                self._seen.clear()
            self._seen[key] = seen
        return seen

    def _matching(self, pattern: str) -> frozenset[str]:
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
