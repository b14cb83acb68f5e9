"""Listeners for Kafka clients: opened together, closed together.

Owns: the listeners, their shared memory budget, and the TLS certificates, which are reloaded
periodically so that renewed ones apply without a restart.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from penstock.base.errors import Refused
from penstock.base.ports import Workers
from penstock.broker.api.context import Context
from penstock.broker.server.listener import HANDSHAKE_SECONDS, Listener, ListenerLimits
from penstock.broker.server.receive_budget import ReceiveBudget
from penstock.broker.server.socket_buffers import SocketBufferSizes
from penstock.broker.server.tls import Certificates
from penstock.broker.server.tls_handshakes import TlsHandshakes
from penstock.cluster.configs.config_types import counts_by_address
from penstock.cluster.configs.effective_configs import BrokerConfigs, InvalidConfig
from penstock.gateway.server import Admits, Connect, OpenPort, OpenTls
from penstock.node.listeners import Protocol, cannot_listen, tls_config
from penstock.node.security.logins import Logins
from penstock.node.security.security_setup import NodeSecurity
from penstock.security.login import Login
from penstock.security.principal_mapping import Rule, parse_rules

log = logging.getLogger("penstock.node")

RELOAD_SECONDS = 5.0


class CannotListen(Exception):
    """A port cannot be opened; the message says why and how to fix it."""


class TlsPort:
    """HTTP port with TLS."""

    def __init__(self, port: int, shaking: TlsHandshakes) -> None:
        self.port = port
        self._shaking = shaking

    async def close(self) -> None:
        await self._shaking.close()


class KafkaListeners:
    """All listeners of a node."""

    def __init__(
        self,
        ctx: Context,
        configs: BrokerConfigs,
        security: NodeSecurity,
    ) -> None:
        """Raises InvalidConfig for unusable certificates or mapping rules."""
        limits = _limits(configs)
        self._configs = configs
        self._generation = configs.generation
        self.budget = ReceiveBudget(limits.buffered_bytes_max)
        self.endpoints = endpoints = security.endpoints
        logins = security.logins
        self._certificates: Certificates | None = None
        self._node_certificates = security.certificates
        self.open_http: OpenTls | None = None
        """Opens the HTTP port, if it uses TLS."""
        if configs.text("http.security.protocol") == "SSL":
            self._certificates = load_certificates(configs)
            self.open_http = self._open_http
        self._ports: dict[str, int] = {}
        self._listeners: list[Listener] = []
        for endpoint in endpoints:
            protocol = endpoint.protocol
            if protocol.has_tls and self._certificates is None:
                self._certificates = load_certificates(configs)
            assert logins is not None or not protocol.has_login
            self._listeners.append(
                Listener(
                    ctx,
                    limits,
                    name=endpoint.name,
                    budget=self.budget,
                    tls=self._certificates.current
                    if self._certificates is not None and protocol.has_tls
                    else None,
                    login=_login(logins, protocol),
                    rules=mapping_rules(configs) if protocol.has_tls else (),
                )
            )

    @property
    def connections(self) -> int:
        return sum(listener.connections for listener in self._listeners)

    @property
    def port(self) -> int:
        """Returns the port for other nodes and for clients of the first listener."""
        return self._ports[self.endpoints[0].name]

    async def open(self) -> None:
        for endpoint, listener in zip(self.endpoints, self._listeners, strict=True):
            try:
                port = await listener.start(endpoint.host, endpoint.port)
            except OSError as error:
                where = (endpoint.host, endpoint.port, "--kafka-port")
                raise CannotListen(cannot_listen(error, *where)) from error
            self._ports[endpoint.name] = port

    def follow(self) -> None:
        """Applies limits that changed while the node runs."""
        if self._configs.generation != self._generation:
            self._generation = self._configs.generation
            limits = _limits(self._configs)
            for listener in self._listeners:
                listener.limit(limits)

    async def _open_http(self, connect: Connect, admits: Admits, host: str, port: int) -> OpenPort:
        assert self._certificates is not None
        shaking = TlsHandshakes(
            self._certificates.current, connect, admits, lambda: 0.0, HANDSHAKE_SECONDS
        )
        return TlsPort(await shaking.open(host, port), shaking)

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Returns the advertised addresses by listener name."""
        return {
            one.name: (one.advertised_host, one.advertised_port or self._ports[one.name])
            for one in self.endpoints
        }

    async def watch_certificates(self, workers: Workers) -> None:
        """Reloads changed certificates until cancelled."""
        ours = [one for one in (self._certificates, self._node_certificates) if one is not None]
        while ours:
            await asyncio.sleep(RELOAD_SECONDS)
            for certificates in ours:
                try:
                    renewed = await workers.run(certificates.reloaded)
                except Refused as refused:
                    log.error("the old certificates stay in use: %s", refused.message)
                    continue
                if renewed is not None:
                    certificates.context = renewed
                    log.info("new certificates are in use for TLS")
        await asyncio.Event().wait()

    async def stop(self, grace_seconds: float) -> None:
        await asyncio.gather(*(listener.stop(grace_seconds) for listener in self._listeners))


def _login(logins: Logins | None, protocol: Protocol) -> Callable[[], Login] | None:
    if logins is None:
        return None
    return logins.login if protocol.has_login else logins.node_login


def load_certificates(configs: BrokerConfigs) -> Certificates:
    """Raises InvalidConfig, naming the file that cannot be used."""
    try:
        return Certificates(tls_config(configs))
    except Refused as refused:
        raise InvalidConfig(refused.message or "TLS cannot be set up") from refused


def mapping_rules(configs: BrokerConfigs) -> Sequence[Rule]:
    """Raises InvalidConfig for rules that cannot be parsed."""
    try:
        return parse_rules(configs.text("ssl.principal.mapping.rules") or "")
    except Refused as refused:
        raise InvalidConfig(refused.message or "invalid mapping rules") from refused


def _limits(configs: BrokerConfigs) -> ListenerLimits:
    return ListenerLimits(
        connections_max=configs.integer("max.connections"),
        connections_per_ip_max=configs.integer("max.connections.per.ip"),
        idle_ms_max=configs.integer("connections.max.idle.ms"),
        frame_bytes_max=configs.integer("socket.request.max.bytes"),
        buffered_bytes_max=configs.integer("queued.max.request.bytes"),
        connection_rate_max=configs.integer("max.connection.creation.rate"),
        backlog=configs.integer("socket.listen.backlog.size"),
        buffers=SocketBufferSizes(
            configs.integer("socket.send.buffer.bytes"),
            configs.integer("socket.receive.buffer.bytes"),
        ),
        overrides=counts_by_address(configs.text("max.connections.per.ip.overrides") or ""),
    )
