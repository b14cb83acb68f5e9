"""Audit entries: their content, and limits on their number.

An entry records the principal, its address, the protocol endpoint, the action, its resources and
its outcome. It never contains values: no passwords, no config values, no records.

Bounds: at most `WAITING_MAX` entries wait to be written. Further ones are counted, and the count
becomes an entry as soon as there is capacity. Frequent events (denials, and commits without group
membership) are written once in `WINDOW_MS` for each endpoint, principal, address, action and
resources. The next such entry, or one at the end of the window, has the number of suppressed ones.

Pure: the time is a parameter.
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
    """Protocol endpoint: kafka, http, console, sqs, sns or registry."""
    principal: str
    peer: str
    """Address of the client."""
    action: str
    """API, route or call by its own name, such as CreateTopics or DELETE /topics/{name}."""
    outcome: str
    """done, denied or failed."""
    resources: tuple[str, ...] = ()
    """Resources such as topic:orders."""
    more_resources: int = 0
    """Number of resources that are not listed."""
    codes: tuple[str, ...] = ()
    """Error codes, by Kafka's names or the endpoint's own."""
    suppressed: int = 0
    """Number of similar entries that were suppressed."""


ENTRY: Final = msgspec.json.Decoder(AuditEntry)


@dataclass(frozen=True, slots=True)
class AuditedCall:
    """An event as an endpoint reports it: an entry without time and node."""

    door: str
    principal: str
    peer: str
    action: str
    outcome: str
    resources: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    is_frequent: bool = False
    """True for an event that may be frequent although it is not denied."""


@dataclass(slots=True)
class _Window:
    until_ms: int
    entry: AuditEntry
    left_out: int = 0


class Trail:
    """Queue of entries to be written."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._waiting: deque[AuditEntry] = deque()
        self._windows: dict[tuple[str, ...], _Window] = {}
        self.lost = 0
        """Entries that were dropped for lack of capacity and are not reported yet."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def has_windows(self) -> bool:
        """True if `take` must be called again later."""
        return bool(self._windows)

    def note(self, audited: AuditedCall, now_ms: int) -> None:
        listed = audited.resources[:RESOURCES_MAX]
        entry = AuditEntry(
            now_ms,
            self._node_id,
            audited.door,
            _short(audited.principal),
            audited.peer,
            _short(audited.action),
            audited.outcome,
            tuple(map(_short, listed)),
            len(audited.resources) - len(listed),
            audited.codes,
        )
        if audited.outcome == DENIED or audited.is_frequent:
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
        """Writes the suppressed counts of windows that have ended."""
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
        """Removes and returns the oldest entries."""
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
