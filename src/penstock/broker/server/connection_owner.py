"""What a connection tells of itself, and to whom; the listener is one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.server.connection import KafkaConnection
    from penstock.broker.server.writable_poller import WritablePoller


class ConnectionOwner:
    """Told when a connection begins and when it is over."""

    room: "WritablePoller"
    """Where its connections wait when their sockets are full."""

    def opened(self, connection: "KafkaConnection") -> None:
        raise NotImplementedError

    def lost(self, connection: "KafkaConnection") -> None:
        raise NotImplementedError
