"""Counts dead-lettered messages by what they share: error, template, key, group, source."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.client.dead_letters.message import DeadLetterMessage
from penstock.client.dead_letters.templates import Templates

KINDS_MAX = 10_000
"""Limits the kinds that are counted separately; messages of further kinds are counted together."""
OTHER_KINDS = "(others)"


@dataclass(slots=True)
class DeadLetterKind:
    """Messages with the same values of the chosen aspect."""

    name: tuple[str, ...]
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    sample: str = ""
    """Id of the first message, as an example."""

    def add(self, message: DeadLetterMessage) -> None:
        at_ms = message.last_failure_ms if message.last_failure_ms > 0 else message.timestamp_ms
        if not self.count:
            self.first_ms = self.last_ms = at_ms
            self.sample = message.id
        self.count += 1
        self.first_ms, self.last_ms = min(self.first_ms, at_ms), max(self.last_ms, at_ms)


def _text(data: bytes | None) -> str:
    return "-" if data is None else data.decode("utf-8", "replace")


ASPECTS: dict[str, tuple[tuple[str, ...], Callable[[DeadLetterMessage], tuple[str, ...]]]] = {
    "error": (("error", "message"), lambda message: (message.error_class, message.error_message)),
    # The message is the template of similar messages, which `DeadLetterKinds` finds.
    "template": (("error", "message"), lambda message: (message.error_class,)),
    "class": (("error",), lambda message: (message.error_class,)),
    "key": (("key",), lambda message: (_text(message.key),)),
    "group": (("group",), lambda message: (message.group,)),
    "source": (
        ("topic", "partition"),
        lambda message: (
            (message.source.topic, str(message.source.partition)) if message.source else ("-", "-")
        ),
    ),
    "redrives": (("redrives",), lambda message: (str(message.redrives),)),
}
"""Aspects to group messages by: names of the columns, and a function that returns their values."""


class DeadLetterKinds:
    """Counts messages by one aspect."""

    def __init__(self, aspect: str) -> None:
        self.columns, self._name_of = ASPECTS[aspect]
        self._kinds: dict[tuple[str, ...], DeadLetterKind] = {}
        self._templates = Templates() if aspect == "template" else None
        self.count = 0

    def add(self, message: DeadLetterMessage) -> None:
        self.count += 1
        name = self._name_of(message)
        if self._templates is not None:
            name = (*name, str(self._templates.add(name[0], message.error_message)))
        kind = self._kinds.get(name)
        if kind is None:
            if len(self._kinds) >= KINDS_MAX:
                name = (OTHER_KINDS, *("" for _ in self.columns[1:]))
            kind = self._kinds.setdefault(name, DeadLetterKind(name))
        kind.add(message)

    def largest(self) -> list[DeadLetterKind]:
        kinds = list(self._kinds.values())
        if self._templates is not None:
            kinds = [
                replace(kind, name=(kind.name[0], self._templates.text(int(kind.name[1]))))
                if kind.name[1]
                else kind
                for kind in kinds
            ]
        return sorted(kinds, key=lambda kind: (-kind.count, kind.name))
