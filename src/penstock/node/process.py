"""Process of a node: signals in, one ready line out, and an exit with a reason.

Owns: the meaning of SIGTERM and SIGINT. The first one asks the node to stop, which hands over
leadership; the second one stops it at once. A node that is still starting is stopped in either
case.
"""

import asyncio
import contextlib
import errno
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable
from typing import TypeVar

import uvloop

from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.node.config import NodeConfig
from penstock.node.listeners import cannot_listen, endpoints, refuse_open_listeners
from penstock.node.node import Node, NodeFailed
from penstock.node.security.secret_exposure import exposures
from penstock.node.security.startup_checks import refuse_unusable_security
from penstock.runtime import systemd
from penstock.runtime.file_permissions import readers_of
from penstock.runtime.malloc import keep_freed

log = logging.getLogger("penstock.node")

T = TypeVar("T")
Ready = Callable[[str, str], None]

YOUNG_OBJECTS_MAX = 10_000
"""New objects after which the garbage collector runs."""


async def serve(config: NodeConfig, ready: Ready) -> None:
    """Runs a node until SIGTERM or SIGINT; raises NodeFailed if it cannot continue."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    await refuse_used_ports(config)
    node = Node(config)

    def asked() -> None:
        if stop.is_set():
            node.hurry()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    starting = loop.create_task(node.start())
    await _either(stop, starting)
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return
    kafka, http = starting.result()
    service = systemd.of_process()
    try:
        # Objects created at start live as long as the node: the collector need not scan them.
        gc.collect()
        gc.freeze()
        # A request's objects are freed with its reply. The default would scan those in flight many
        # times: with a thousand parked replies, that takes a tenth of all CPU.
        gc.set_threshold(YOUNG_OBJECTS_MAX, *gc.get_threshold()[1:])
        ready(kafka, http)
        service.ready(f"Kafka on {kafka}, HTTP on {http}")
        await _either(stop, node.failed)
    finally:
        service.stopping()
        await node.stop()
        await service.close()
    if node.failed.done():
        await node.failed


async def _either(stop: asyncio.Event, other: "asyncio.Future[T]") -> None:
    """Returns when asked to stop, or when the other is done."""
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((stopping, other), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


def refuse_open_access(config: NodeConfig) -> None:
    """Raises InvalidConfig unless every client that can reach the node has to authenticate."""
    if not config.is_insecure:
        configs = BrokerConfigs(config.overrides)
        found = endpoints(configs, config.host, config.kafka_port, config.advertised_host)
        refuse_open_listeners(found, configs, config.host)


async def refuse_used_ports(config: NodeConfig) -> None:
    """Raises NodeFailed if a port is in use, before the data directory has any file."""
    loop = asyncio.get_running_loop()
    found = endpoints(
        BrokerConfigs(config.overrides), config.host, config.kafka_port, config.advertised_host
    )
    wanted = [(one.host, one.port, "--kafka-port") for one in found]
    for host, port, flag in [*wanted, (config.host, config.http_port, "--http-port")]:
        if port:
            try:
                server = await loop.create_server(asyncio.Protocol, host, port)
                server.close()
                await server.wait_closed()
            except OSError as error:
                # Names that do not resolve here, and so on, are left to the listeners.
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    raise NodeFailed(cannot_listen(error, host, port, flag)) from error


def warn_of_exposures(config: NodeConfig) -> None:
    """Logs warnings; raises InvalidConfig for secrets that every user of this machine can read."""
    for warning in exposures(config, readers_of):
        log.warning("%s", warning)


def run(config: NodeConfig, ready: Ready) -> None:
    """Runs `serve` on its own loop. Refuses -O, because assertions must stay on."""
    if sys.flags.optimize:
        raise NodeFailed("Penstock does not run under python -O: its assertions must stay on")
    refuse_open_access(config)
    warn_of_exposures(config)
    refuse_unusable_security(config)
    keep_freed()
    # A core file would contain every secret that requests brought along.
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    uvloop.run(serve(config, ready))
