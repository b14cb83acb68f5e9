"""Model of the metadata store in memory: revisions, guards, leases, history.

Pure: changes and the time come in, the resulting changes go out. The embedded store
(`runtime/sqlite_store.py`) makes each change durable before it applies it here; the simulated one
(`simulation/store.py`) delays changes, loses them and leaves results unknown. Semantics are etcd's:

- every transaction that changes something takes one new revision; one that changes nothing
  (a deletion of a missing key) takes none;
- a put with a lease that no longer exists fails like a guard;
- a put without a lease detaches the key from its previous lease;
- a key whose lease ends is deleted, all keys of the lease at one revision;
- the last `history_max` revisions can be watched; a watcher of older ones must read again.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.base.ports import COMMIT_CHANGES_MAX, Change, Delete, Expect, Put, StoreEntry


def check_size(expects: Sequence[Expect], changes: Sequence[Put | Delete]) -> None:
    """Checks etcd's limits in every store: otherwise only a cluster would find a violation."""
    assert max(len(expects), len(changes)) <= COMMIT_CHANGES_MAX, "too many changes for a commit"
    keys = {change.key for change in changes}
    assert len(keys) == len(changes), "a transaction may change a key only once"


@dataclass(slots=True)
class StoreLease:
    ttl_s: float
    deadline_s: float
    keys: dict[str, None] = field(default_factory=dict)  # An ordered set.


class StoreModel:
    def __init__(self, *, history_max: int = 10_000) -> None:
        self.revision = 0
        self.compacted = 0
        """Highest revision that can no longer be watched."""
        self.leases: dict[int, StoreLease] = {}
        self._entries: dict[str, StoreEntry] = {}
        self._keys: list[str] = []  # Sorted.
        self._history: list[list[Change]] = []  # Changes of the revisions above `compacted`.
        self._history_max = history_max

    # Reading.

    def get(self, key: str) -> StoreEntry | None:
        return self._entries.get(key)

    def range(self, prefix: str) -> list[StoreEntry]:
        start = bisect.bisect_left(self._keys, prefix)
        found = []
        for at in range(start, len(self._keys)):
            key = self._keys[at]
            if not key.startswith(prefix):
                break
            found.append(self._entries[key])
        return found

    def changes_at(self, revision: int, prefix: str) -> list[Change]:
        """Changes under `prefix` at a revision that is not compacted."""
        changes = self._history[revision - self.compacted - 1]
        return [change for change in changes if change.key.startswith(prefix)]

    # Changing.

    def plan(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> list[Put | Delete] | None:
        """Changes that would have an effect, or None if a guard does not hold."""
        check_size(expects, changes)
        for expect in expects:
            entry = self._entries.get(expect.key)
            if (entry.revision if entry else 0) != expect.revision:
                return None
        effective: list[Put | Delete] = []
        for change in changes:
            if isinstance(change, Put):
                if change.lease and change.lease not in self.leases:
                    return None
                effective.append(change)
            elif change.key in self._entries:
                effective.append(change)
        return effective

    def apply(self, changes: Sequence[Put | Delete]) -> int:
        """Applies a plan at the next revision and returns that; an empty plan takes none."""
        if not changes:
            return self.revision
        self.revision += 1
        seen = []
        for change in changes:
            if isinstance(change, Put):
                self.restore(StoreEntry(change.key, change.value, self.revision, change.lease))
                seen.append(Change(change.key, change.value, self.revision))
            else:
                self._detach(self._entries.pop(change.key))
                del self._keys[bisect.bisect_left(self._keys, change.key)]
                seen.append(Change(change.key, None, self.revision))
        self._history.append(seen)
        if len(self._history) >= 2 * self._history_max:  # In chunks: deleting moves the list.
            self.compact(self.revision - self._history_max)
        return self.revision

    def restore(self, entry: StoreEntry) -> None:
        """Sets an entry with its revision: the only change without a history."""
        old = self._entries.get(entry.key)
        if old is None:
            bisect.insort(self._keys, entry.key)
        else:
            self._detach(old)
        self._entries[entry.key] = entry
        if entry.lease:
            self.leases[entry.lease].keys[entry.key] = None

    def restart(self, revision: int) -> None:
        """Continues from `revision` after `restore`, without earlier history."""
        self.revision = self.compacted = revision
        self._history.clear()

    def compact(self, revision: int) -> None:
        if revision > self.compacted:
            assert revision <= self.revision
            del self._history[: revision - self.compacted]
            self.compacted = revision

    # Leases. The time is the caller's, in seconds.

    def grant(self, lease: int, ttl_s: float, now_s: float) -> None:
        assert lease > 0
        assert lease not in self.leases
        self.leases[lease] = StoreLease(ttl_s, now_s + ttl_s)

    def renew(self, lease: int, now_s: float) -> bool:
        held = self.leases.get(lease)
        if held is None or held.deadline_s <= now_s:
            return False
        held.deadline_s = now_s + held.ttl_s
        return True

    def expired(self, now_s: float) -> list[int]:
        return [number for number, held in self.leases.items() if held.deadline_s <= now_s]

    def next_deadline_s(self) -> float | None:
        return min((held.deadline_s for held in self.leases.values()), default=None)

    def keys_of(self, lease: int) -> list[Put | Delete]:
        """Deletions for the end of a lease."""
        held = self.leases.get(lease)
        return [Delete(key) for key in sorted(held.keys)] if held else []

    def end(self, lease: int) -> None:
        """Removes a lease whose keys have been deleted."""
        held = self.leases.pop(lease, None)
        assert held is None or not held.keys

    def _detach(self, entry: StoreEntry) -> None:
        if entry.lease and entry.lease in self.leases:
            self.leases[entry.lease].keys.pop(entry.key, None)
