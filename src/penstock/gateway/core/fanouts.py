"""Topics that fan out to queues, with their subscriptions: one record each in the metadata store.

Subscriptions are as durable as the cluster itself; each change is one compare-and-swap. `sns` gives
the attributes of such a topic their meaning.
"""

from collections.abc import Callable, Mapping, Sequence

from penstock.base.ports import Delete, Put, StoreEntry
from penstock.broker.api.context import Context
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.store_keys import FanoutRecord

Edit = Callable[[FanoutRecord | None], FanoutRecord | None]


def size_of(record: FanoutRecord) -> int:
    """Size of a topic's record in the metadata store, in bytes."""
    return len(store_keys.encode(record))


class Fanouts:
    """Fan-out topics of the cluster."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    @property
    def all(self) -> Mapping[str, FanoutRecord]:
        return self._ctx.image.fanouts

    async def change(self, name: str, edit: Edit) -> None:
        """Changes a topic's record to what `edit` returns; None stands for no record.

        `edit` may be called more than once, and may raise to refuse.
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
