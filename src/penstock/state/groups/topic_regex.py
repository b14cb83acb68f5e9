"""Topic subscription by regular expression, through RE2 (KIP-848).

The state machine has no regex engine: the host passes `compile_pattern`, which returns a
full-match test or raises `Refused(INVALID_REGULAR_EXPRESSION)`. RE2 runs in linear time, so a
pattern may be run against every topic. Matches are cached until the topics change.

A pattern matches only topics that its member may see. Otherwise any principal that may join a
group would be assigned partitions that it may neither read nor know of, and they would stay
unread. The host also passes `may_see`, and reports changed permissions (`topics_changed`).
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
    """Pattern compiler of hosts without RE2: refuses every pattern."""
    raise Refused(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"cannot subscribe by pattern {pattern!r}: this broker has no regular expression engine",
    )


def see_everything(principal: str, address: str, topic: str) -> bool:
    """Visibility check of hosts without permissions: allows every topic."""
    return True


class Patterns:
    """Cache of the topics that match each pattern."""

    def __init__(self, compile_pattern: CompilePattern, may_see: MaySee = see_everything) -> None:
        self._compile = compile_pattern
        self._may_see = may_see
        self._topics = TopicCatalogue()
        self._found: dict[str, frozenset[str]] = {}
        self._seen: dict[tuple[str, str, str], frozenset[str]] = {}

    def topics_changed(self, topics: TopicCatalogue) -> None:
        """Replaces the topics and clears the cache; also called when permissions change."""
        self._topics = topics
        self._found.clear()
        self._seen.clear()

    def check(self, pattern: str) -> None:
        """Raises Refused if the pattern cannot be used."""
        if pattern and pattern not in self._found:
            self._match(pattern)

    def matching(self, pattern: str, principal: str, client_host: str) -> frozenset[str]:
        """Topics that match a stored pattern; none if the engine no longer accepts it.

        `principal` is empty for members stored by an earlier version: they see every topic.
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
            raise Refused(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"pattern of {len(pattern)} characters is too long: at most {PATTERN_CHARS_MAX}",
            )
        matches = self._compile(pattern)
        if len(self._found) >= REMEMBERED_MAX:
            self._found.clear()
        found = frozenset(name for name in self._topics.by_name if matches(name))
        self._found[pattern] = found
        return found
