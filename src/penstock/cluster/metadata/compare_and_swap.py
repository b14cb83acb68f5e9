"""Compare-and-swap loop: read, decide, commit. All changes of this package to the store use it.

Owns: the retries. Invariants: a decision is made from a linearizable read, and committed only if
nothing that it read has changed. After an unknown result the keys are read again first, and a
change that is found there is not made twice. The number of attempts is bounded.
Elsewhere: the decisions (`topics`, `config_changes`, `producer_ids`).
"""

from collections.abc import Callable, Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Delete, Expect, Put, Store, StoreEntry, UnknownResult
from penstock.base.retry import Retry

ATTEMPTS = 12
PAUSE_SECONDS = (0.02, 1.0)

Changes = Sequence[Put | Delete]
ChangeFunction = Callable[[Sequence[StoreEntry | None]], Changes]


async def swap(
    store: Store, keys: Sequence[str], decide: ChangeFunction, *, equal_is_ours: bool = True
) -> int:
    """Commits what `decide` returns for the present entries of `keys`; returns the revision.

    `decide` may raise Refused; it is called again when another writer was faster. An empty decision
    means that nothing is to change: the result is then the newest revision read. After an unknown
    result, finding exactly our values in the store counts as success, unless `equal_is_ours` is
    False because another writer could have written the same.
    """
    retry = Retry(store.random, *PAUSE_SECONDS)
    # Changes that may have been committed, or may still be: a slow commit can land late.
    doubtful: list[Changes] = []
    for _ in range(ATTEMPTS):
        changes: Changes = ()
        try:
            entries = [await store.get(key) for key in keys]
            for maybe in doubtful:
                revision = await _committed(store, maybe)
                if revision is not None:
                    return revision
            changes = decide(entries)
            if not changes:
                return max((entry.revision for entry in entries if entry), default=0)
            expects = [
                Expect(key, entry.revision if entry else 0)
                for key, entry in zip(keys, entries, strict=True)
            ]
            committed = await store.commit(expects, changes)
            if committed is not None:
                return committed
        except (UnknownResult, TimeoutError, ConnectionError):
            if changes and equal_is_ours:
                doubtful.append(changes)
            await retry.pause()
    raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the metadata store did not confirm the change")


async def _committed(store: Store, changes: Changes) -> int | None:
    """Revision of `changes` in the store; None if one of them is not there as it was made."""
    revision = 0
    for change in changes:
        entry = await store.get(change.key)
        if isinstance(change, Delete):
            if entry is not None:
                return None
        elif entry is None or entry.value != change.value:
            return None
        else:
            revision = max(revision, entry.revision)
    return revision
