"""Identity of the client behind a gateway request: principal, host and client id.

Permissions are checked by principal and host, quotas by principal and client id, as for a Kafka
connection.
"""

from dataclasses import dataclass

from penstock.security.acl_types import ANONYMOUS, WILDCARD


@dataclass(frozen=True, slots=True)
class Principal:
    """Principal on whose behalf a gateway acts."""

    name: str = ANONYMOUS
    """For example `User:ann`."""
    host: str = WILDCARD
    """Client's address; without one, only permissions for every host apply."""
    client_id: str = ""
    """Name the client gives itself; empty if it gives none."""

    @property
    def holder(self) -> str:
        """Holder of a share of a bounded resource: the user, or an anonymous client's address."""
        return self.host if self.name == ANONYMOUS else self.name

    def __str__(self) -> str:
        return self.name
