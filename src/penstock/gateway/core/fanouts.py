"""Topics that fan out to queues, with their subscriptions: one record each in the metadata store.

What is subscribed is as durable as the cluster itself, and a change of it is one compare-and-swap.
What the attributes of such a topic mean is the dialect's (`sns`).
"""

from collections.abc import Callable, Mapping, Sequence

from penstock.base.ports import Delete, Put, StoreEntry
from penstock.broker.api.context import Context
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.store_keys import FanoutRecord

Edit = Callable[[FanoutRecord | None], FanoutRecord | None]


def size_of(record: FanoutRecord) -> int:
    """Bytes that a topic takes in the metadata store."""
    return len(store_keys.encode(record))


class Fanouts:
    """Those of the cluster."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    @property
    def all(self) -> Mapping[str, FanoutRecord]:
        return self._ctx.image.fanouts

    async def change(self, name: str, edit: Edit) -> None:
        """Keeps what `edit` makes of a topic's record, None where there is none, or is to be none.

        `edit` may be called more than once, and may refuse by raising.
        """
        key = store_keys.FANOUTS + name

        def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
            entry = entries[0]
            present = None if entry is None else store_keys.decode(FanoutRecord, entry.value)
            wanted = edit(present)
            if wanted is None:
                return [] if entry is None else [Delete(key)]
            value = store_keys.encode(wanted)
            return [] if entry is not None and value == entry.value else [Put(key, value)]

        await self._ctx.reached(await compare_and_swap.swap(self._ctx.admin.store, [key], decide))
