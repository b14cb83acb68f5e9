"""Metadata watcher: keeps this node's image up to date with the store.

Owns: the present `image`, callers that wait for a revision, and listeners for changes.
Invariants: the image's revision never goes back. Listeners get every image in order, with the one
before. After `reached(r)` the image is at `r` or later, and the listeners have run. A watch may be
lost: then the whole range is read again, and listeners get everything in between as one change.
Elsewhere: the content of an image (`image`), and running `run` in the node's task group.
"""

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import Callable

from penstock.base.ports import Store, UnknownResult, WatchLost
from penstock.base.retry import Retry
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import EMPTY, Image, load

RETRY_SECONDS = (0.05, 2.0)

Listener = Callable[[Image, Image], None]


class MetadataWatcher:
    """Newest image of the store that this node has seen."""

    def __init__(self, store: Store) -> None:
        self.image: Image = EMPTY
        self._store = store
        self._listeners: list[Listener] = []
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def on_change(self, listener: Listener) -> None:
        """Registers `listener(before, after)`: runs on the loop at every change, must not wait."""
        self._listeners.append(listener)

    async def start(self) -> Image:
        """Loads the range. The image is complete on return."""
        self._set_image(load(*await self._store.range(store_keys.ALL)))
        return self.image

    async def run(self) -> None:
        """Watches the store until cancelled."""
        retry = Retry(self._store.random, *RETRY_SECONDS)
        while True:
            try:
                async for changes in self._store.watch(store_keys.ALL, self.image.revision):
                    self._set_image(self.image.apply(changes))
                    retry.succeeded()
            except (WatchLost, UnknownResult, TimeoutError, ConnectionError):
                pass
            # However the watch ended, the range contains the changes that it missed.
            with contextlib.suppress(UnknownResult, TimeoutError, ConnectionError):
                self._set_image(load(*await self._store.range(store_keys.ALL)))
            await retry.pause()

    async def reached(self, revision: int) -> None:
        """Waits until the image shows everything up to `revision`."""
        if self.image.revision >= revision:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (revision, next(self._order), future))
        await future

    def _set_image(self, image: Image) -> None:
        before = self.image
        if image.revision <= before.revision and before is not EMPTY:
            return
        self.image = image
        for listener in self._listeners:
            listener(before, image)
        while self._waiters and self._waiters[0][0] <= image.revision:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)
