"""Templates of error messages: the words that messages of one cause share, and `<*>` for the rest.

"unknown postcode for Graz" and "unknown postcode for Wien" have the template "unknown postcode for
<*>". Numbers, UUIDs, hexadecimal ids, and what is in quotes are variable from the start. Messages
with the same error class and number of words share a template if at least `SHARED` of the words
that are fixed in both are the same. A template only ever becomes more general, so it matches all
messages that were added to it. Pure computation.

Bounds: `WORDS_MAX` words of a message count. For each error class and number of words there are
`TEMPLATES_MAX` templates, the last of which takes every further message. `GROUPS_MAX` such groups
are distinguished. `KNOWN_MAX` messages are remembered: repeated ones are not compared again.
"""

import re
from collections.abc import Sequence

VARIABLE = "<*>"
WORDS_MAX = 60
SHARED = 0.6
TEMPLATES_MAX = 100
GROUPS_MAX = 10_000
KNOWN_MAX = 10_000
OTHERS = -1
"""Index for messages of further groups."""
_VARIABLE_PART = re.compile(
    r"'[^']*'|\"[^\"]*\"|`[^`]*`"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
    r"|\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d+(?:[.,:]\d+)*"
)

Words = tuple[str, ...]


def words_of(message: str) -> Words:
    """Returns the words of a message, with `<*>` for its numbers, ids and quoted texts."""
    words = _VARIABLE_PART.sub(VARIABLE, message).split(maxsplit=WORDS_MAX)
    return tuple(words[:WORDS_MAX])


def matches(template: str, message: str) -> bool:
    """Returns True if the template describes the message."""
    words, wanted = words_of(message), template.split()
    return len(words) == len(wanted) and all(
        want in (VARIABLE, word) for want, word in zip(wanted, words, strict=True)
    )


class Templates:
    """Finds the template of each message, while messages are added."""

    def __init__(self) -> None:
        self._templates: list[Words] = []
        self._alike: dict[tuple[str, int], list[int]] = {}
        """Indexes of the templates by error class and number of words."""
        self._known: dict[tuple[str, Words], int] = {}

    def add(self, error_class: str, message: str) -> int:
        """Returns the index of the message's template."""
        words = words_of(message)
        key = error_class, words
        found = self._known.get(key)
        if found is None:
            found = self._index_of(error_class, words)
            if len(self._known) < KNOWN_MAX:
                self._known[key] = found
        return found

    def text(self, index: int) -> str:
        return "" if index == OTHERS else " ".join(self._templates[index])

    def _index_of(self, error_class: str, words: Words) -> int:
        if (error_class, len(words)) not in self._alike and len(self._alike) >= GROUPS_MAX:
            return OTHERS
        alike = self._alike.setdefault((error_class, len(words)), [])
        best, best_share = -1, 0.0
        for index in alike:
            share = _shared(self._templates[index], words)
            if share > best_share:
                best, best_share = index, share
        if best_share >= SHARED:
            self._templates[best] = tuple(
                word if word == other else VARIABLE
                for word, other in zip(self._templates[best], words, strict=True)
            )
            return best
        if len(alike) >= TEMPLATES_MAX:
            self._templates[alike[-1]] = (VARIABLE,) * len(words)
            return alike[-1]
        self._templates.append(words)
        alike.append(len(self._templates) - 1)
        return alike[-1]


def _shared(template: Sequence[str], words: Sequence[str]) -> float:
    """Returns the share of equal words among those that are fixed in both."""
    fixed = equal = 0
    for word, other in zip(template, words, strict=True):
        if VARIABLE not in (word, other):
            fixed += 1
            equal += word == other
    return equal / fixed if fixed else float(tuple(template) == tuple(words))
