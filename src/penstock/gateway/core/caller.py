"""Who came through a door: whom they have shown to be, from where, and as which client.

Rights are asked for by name and host, quotas by name and client id, as for a Kafka connection.
"""

from dataclasses import dataclass

from penstock.security.acl_types import ANONYMOUS, WILDCARD


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever a door acts for."""

    name: str = ANONYMOUS
    """Like `User:ann`."""
    host: str = WILDCARD
    """The address that they come from; without one, only rights that hold for every host do."""
    client_id: str = ""
    """What their program calls itself; empty: it does not say."""

    @property
    def holder(self) -> str:
        """Holder of a share of what is bounded: the user, or the address of an anonymous client."""
        return self.host if self.name == ANONYMOUS else self.name

    def __str__(self) -> str:
        return self.name
