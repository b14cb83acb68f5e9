"""State of the HTTP port and of the console, taken from the node."""

from typing import TYPE_CHECKING

from penstock import __version__
from penstock.gateway.app import HttpState
from penstock.gateway.console.console import About, Console
from penstock.gateway.console.mount import ConsoleMount

if TYPE_CHECKING:
    from penstock.node.node import Node


def web_of(node: "Node", cluster_id: str, kafka_address: str) -> tuple[HttpState, Console]:
    logins = node.security.logins
    console = Console(node.gateway, About(__version__, cluster_id, kafka_address), logins)
    state = HttpState(
        version=__version__,
        node_id=node.config.node_id,
        cluster_id=cluster_id,
        kafka_address=kafka_address,
        catalogue=node.metrics.catalogue,
        health_problem=lambda: "the node has failed" if node.failed.done() else None,
        readiness_problem=node.readiness_problem,
        gateway=node.gateway,
        users=logins,
        moves=node.moves,
        console=ConsoleMount(console),
    )
    return state, console
