"""This process's way to a cluster: one event loop, one set of connections, blocking calls.

Spark runs Python in plain synchronous processes, one task at a time, and uses a process again for
the next task. So connections live here, in a module's global, keyed by where they lead, and with
them who coordinates what; they are never carried into a fork. The loop runs only while a call
waits: a reply that comes meanwhile waits in the socket.
"""

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from penstock.base.errors import Refused
from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.connection import ConnectionConfig
from penstock.client.security_settings import parse_security
from penstock.runtime.malloc import keep_freed
from penstock.runtime.random import SystemRandom
from penstock.spark.option_values import OptionError
from penstock.spark.settings import ClusterAddress

T = TypeVar("T")

_LINKS_MAX = 8
_REUSED_BYTES_MAX = 64 << 20

_links: dict[tuple[int, ClusterAddress], "Link"] = {}
"""The newest last; the process id keeps a forked child from using its parent's."""
_settled = 0
"""The process that `settle` was last called in."""


def cluster_of(access: ClusterAddress, reused_bytes_max: int = 0) -> Cluster:
    """Ways to the brokers, not opened yet; for whoever has an event loop of its own."""
    random = SystemRandom()
    try:
        security = parse_security(dict(access.security), random)
    except (ValueError, Refused) as error:
        raise OptionError(f"options kafka.ssl.*, kafka.sasl.*: {error}") from None
    config = ConnectionConfig(
        client_id=access.client_id, reused_bytes_max=reused_bytes_max, tls=security.tls
    )
    addresses = parse_brokers(access.brokers)
    return Cluster(random, addresses, config, authenticate=security.authenticate)


class Link:
    def __init__(self, access: ClusterAddress) -> None:
        keep_freed()
        self.access = access
        # For a few large replies the standard loop is as fast as any, and it is there already.
        self.loop = asyncio.new_event_loop()
        self.cluster = cluster_of(access, reused_bytes_max=_REUSED_BYTES_MAX)
        # Every batch asks the same few; without this each question would be two.
        self.cluster.coordinators = {}
        settle()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def retry(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs `work()` until it succeeds or brokers have been away for too long."""
        return self.run(self.cluster.retrying(work, timeout_ms=self.access.retry_timeout_ms))

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begins something and lets it get as far as its first wait."""
        task = self.loop.create_task(work)
        self.run(asyncio.sleep(0))
        return task

    def finish(self, task: "asyncio.Task[T]") -> T:
        return self.loop.run_until_complete(task)

    def close(self) -> None:
        self.run(self.cluster.close())
        self.loop.close()


def settle() -> None:
    """Spares what this process has loaded from the collections to come.

    Spark has a worker collect garbage after every task: 30 ms of CPU for PySpark's and PyArrow's
    modules alone, in each of the three or four processes of a small batch. Once per process:
    garbage that is there at the time stays.
    """
    global _settled
    if _settled != os.getpid():
        _settled = os.getpid()
        gc.freeze()


def link_to(access: ClusterAddress) -> Link:
    """The link of this process, made at the first call. Connections that ended are noticed."""
    key = (os.getpid(), access)
    link = _links.pop(key, None)
    if link is None:
        while len(_links) >= _LINKS_MAX:
            process, oldest = next(iter(_links))
            stale = _links.pop((process, oldest))
            if process == os.getpid():
                stale.close()
        link = Link(access)
    _links[key] = link
    # The loop has been still since the last call; let it see what the sockets have to say.
    link.run(asyncio.sleep(0))
    return link


def close_links() -> None:
    """Ends every connection of this process."""
    for process, access in list(_links):
        link = _links.pop((process, access))
        if process == os.getpid():
            link.close()
