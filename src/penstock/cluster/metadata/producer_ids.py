"""Producer ids that are unique in the cluster, for ever (KIP-730).

Owns: this node's block of ids. A block of 1,000 is claimed with one compare-and-swap on
`/producer-ids` before any of it is handed out, so an id is never given twice, whatever crashes.
The rest of a block is lost at a restart, which costs nothing: there are 2^63 ids. The claim is also
persisted here before use (`remember`): a restored store would hand out the block again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.base.ports import Delete, Put, Store, StoreEntry
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.store_keys import ProducerIdsRecord

BLOCK = 1000


async def _remember_nothing(next_id: int) -> None:
    pass


class ProducerIds:
    """Hands out producer ids; asks the store once per thousand."""

    def __init__(
        self, store: Store, remember: Callable[[int], Awaitable[None]] = _remember_nothing
    ) -> None:
        """`remember(next)` returns once it is persisted that ids below it may be in use."""
        self._store = store
        self._remember = remember
        self._next = 0
        self._end = 0
        self._claiming = asyncio.Lock()

    async def next(self) -> int:
        while (producer_id := self.take()) is None:
            await self.ensure_available()
        return producer_id

    def take(self) -> int | None:
        """Returns the next id; None when the block is used up: see `ensure_available`."""
        if self._next >= self._end:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    async def ensure_available(self) -> None:
        """Claims a block if needed; ids are available on return."""
        if self._next >= self._end:
            async with self._claiming:
                # Callers that waited for the lock find the block that the first one claimed.
                if self._next >= self._end:
                    await self._claim()

    async def _claim(self) -> None:
        start = 0

        def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
            nonlocal start
            entry = entries[0]
            start = store_keys.decode(ProducerIdsRecord, entry.value).next if entry else 0
            record = ProducerIdsRecord(next=start + BLOCK)
            return [Put(store_keys.PRODUCER_IDS, store_keys.encode(record))]

        # After an unknown result the same number may be another node's claim: claim a new block.
        await compare_and_swap.swap(
            self._store, [store_keys.PRODUCER_IDS], decide, equal_is_ours=False
        )
        await self._remember(start + BLOCK)
        self._next, self._end = start, start + BLOCK
