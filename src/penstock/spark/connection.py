"""Blocking client of this process: one event loop and one set of connections per cluster.

Spark runs Python in plain synchronous processes, one task at a time, and reuses a process for the
next task. So connections and known coordinators are cached in a module global, keyed by cluster
address; they are never carried into a fork. The loop runs only while a call waits: a reply that
arrives in between stays in the socket.
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
from penstock.spark.worker_exit import end_quietly

T = TypeVar("T")

# Every process of Spark that runs this package imports this module before it works.
end_quietly()

_CLIENTS_MAX = 8
_REUSED_BYTES_MAX = 64 << 20

_clients: dict[tuple[int, ClusterAddress], "BlockingClient"] = {}
"""Most recently used last; the process id keeps a forked child from using its parent's."""
_frozen_in_process = 0
"""Id of the process that `freeze_loaded_modules` was last called in."""


def cluster_of(access: ClusterAddress, reused_bytes_max: int = 0) -> Cluster:
    """Connections to the brokers, not opened yet, for callers with their own event loop."""
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


class BlockingClient:
    def __init__(self, access: ClusterAddress) -> None:
        keep_freed()
        self.access = access
        # For a few large replies the standard loop is as fast as any, and needs no import.
        self.loop = asyncio.new_event_loop()
        self.cluster = cluster_of(access, reused_bytes_max=_REUSED_BYTES_MAX)
        # Every batch asks the same few coordinators; the cache saves a lookup per request.
        self.cluster.coordinators = {}
        freeze_loaded_modules()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def retry(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs `work()` until it succeeds or brokers stay unavailable for the retry timeout."""
        return self.run(self.cluster.retrying(work, timeout_ms=self.access.retry_timeout_ms))

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Starts a task and runs it up to its first wait."""
        task = self.loop.create_task(work)
        self.run(asyncio.sleep(0))
        return task

    def finish(self, task: "asyncio.Task[T]") -> T:
        return self.loop.run_until_complete(task)

    def close(self) -> None:
        self.run(self.cluster.close())
        self.loop.close()


def freeze_loaded_modules() -> None:
    """Exempts loaded modules from later garbage collections.

    Spark workers collect garbage after every task: 30 ms of CPU for PySpark's and PyArrow's
    modules alone, in each of the three or four processes of a small batch. Runs once per process:
    garbage that exists at the time is never collected.
    """
    global _frozen_in_process
    if _frozen_in_process != os.getpid():
        _frozen_in_process = os.getpid()
        gc.freeze()


def blocking_client(access: ClusterAddress) -> BlockingClient:
    """Client of this process for a cluster, created at the first call.

    Lets the event loop notice connections that were closed since the last call.
    """
    key = (os.getpid(), access)
    client = _clients.pop(key, None)
    if client is None:
        while len(_clients) >= _CLIENTS_MAX:
            process, oldest = next(iter(_clients))
            stale = _clients.pop((process, oldest))
            if process == os.getpid():
                stale.close()
        client = BlockingClient(access)
    _clients[key] = client
    # The loop has not run since the last call: let it process socket events.
    client.run(asyncio.sleep(0))
    return client


def close_clients() -> None:
    """Closes every connection of this process."""
    for process, access in list(_clients):
        client = _clients.pop((process, access))
        if process == os.getpid():
            client.close()
