"""What is written down of who did what: entries, and how many of them there may be.

An entry says who asked, from where, through which door, for what, on which resources, and what
became of it. It never holds values: no passwords, no configs' values, no records.

Bounds: what waits to be written is `WAITING_MAX` entries; beyond that they are counted, and the
count is an entry as soon as there is room. What may come in floods (denials, and commits of those
who are in no group) is written once in `WINDOW_MS` for each who, what and where; the next entry of
that kind, or one at the end of the window, says how many were left out.

Pure: the time comes in.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

WAITING_MAX: Final = 10_000
WINDOW_MS: Final = 10_000
WINDOWS_MAX: Final = 10_000
RESOURCES_MAX: Final = 50
TEXT_MAX: Final = 250

DONE: Final = "done"
DENIED: Final = "denied"
FAILED: Final = "failed"


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the audit log."""

    time_ms: int
    node: int
    door: str
    """kafka, http, console, sqs, sns or registry."""
    principal: str
    peer: str
    """The address it came from."""
    action: str
    """The API, route or call by its own name, such as CreateTopics or DELETE /topics/{name}."""
    outcome: str
    """done, denied or failed."""
    resources: tuple[str, ...] = ()
    """Like topic:orders."""
    more_resources: int = 0
    """How many are not listed."""
    codes: tuple[str, ...] = ()
    """Why not, by Kafka's names or the door's own."""
    suppressed: int = 0
    """How many more there were like this one, not written down."""


ENTRY: Final = msgspec.json.Decoder(AuditEntry)


@dataclass(frozen=True, slots=True)
class Deed:
    """What a door tells: everything of an entry but when and on which node."""

    door: str
    principal: str
    peer: str
    action: str
    outcome: str
    resources: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    is_frequent: bool = False
    """Of a kind that may come in floods though it is not denied."""


@dataclass(slots=True)
class _Window:
    until_ms: int
    entry: AuditEntry
    left_out: int = 0


class Trail:
    """What waits to be written down."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._waiting: deque[AuditEntry] = deque()
        self._windows: dict[tuple[str, ...], _Window] = {}
        self.lost = 0
        """Entries that there was no room for, and that are not yet written down as such."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def has_windows(self) -> bool:
        """Whether `take` should be asked again later."""
        return bool(self._windows)

    def note(self, deed: Deed, now_ms: int) -> None:
        listed = deed.resources[:RESOURCES_MAX]
        entry = AuditEntry(
            now_ms,
            self._node_id,
            deed.door,
            _short(deed.principal),
            deed.peer,
            _short(deed.action),
            deed.outcome,
            tuple(map(_short, listed)),
            len(deed.resources) - len(listed),
            deed.codes,
        )
        if deed.outcome == DENIED or deed.is_frequent:
            self._note_frequent(entry, now_ms)
        else:
            self._add(entry)

    def _note_frequent(self, entry: AuditEntry, now_ms: int) -> None:
        key = (entry.door, entry.principal, entry.peer, entry.action, *entry.resources)
        window = self._windows.get(key)
        if window is None or now_ms >= window.until_ms:
            left_out = window.left_out if window is not None else 0
            self._add(msgspec.structs.replace(entry, suppressed=left_out))
            if window is None and len(self._windows) >= WINDOWS_MAX:
                self.close_windows(now_ms)
            if window is not None or len(self._windows) < WINDOWS_MAX:
                self._windows[key] = _Window(now_ms + WINDOW_MS, entry)
            return
        window.left_out += 1
        window.entry = entry

    def close_windows(self, now_ms: int) -> None:
        """Writes down what windows that are over left out."""
        for key, window in list(self._windows.items()):
            if now_ms >= window.until_ms:
                del self._windows[key]
                if window.left_out:
                    # The last of them is this entry itself.
                    left_out = window.left_out - 1
                    self._add(msgspec.structs.replace(window.entry, suppressed=left_out))

    def _add(self, entry: AuditEntry) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self.lost += 1
        else:
            self._waiting.append(entry)

    def take(self, count: int, now_ms: int) -> list[AuditEntry]:
        """The oldest entries, which no longer wait."""
        self.close_windows(now_ms)
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        if self.lost and len(self._waiting) < WAITING_MAX:
            lost, self.lost = self.lost, 0
            taken.append(
                AuditEntry(
                    now_ms, self._node_id, "audit", "", "", "Overflow", FAILED, suppressed=lost
                )
            )
        return taken


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "..."


def named(kind: str, names: Iterable[object]) -> tuple[str, ...]:
    """Resources of one kind."""
    return tuple(f"{kind}:{name}" for name in names)
