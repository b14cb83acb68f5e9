"""Authorizers that grant everything, or exactly the permissions that a test adds."""

from collections.abc import Iterable

from penstock.broker.api.route_row import Needs, Operation, ResourceType
from penstock.security.acl_types import ANONYMOUS, Permission
from penstock.security.acls import AccessControl, AclEntry, Resource

EVE, HOST, ELSEWHERE = "User:eve", "10.9.8.7", "10.9.8.8"
TOPIC, GROUP, MISSING = "secret-topic", "secret-group", "nosuch-topic"
DENIED = (401, 403)
NAMES = {ResourceType.TOPIC: TOPIC, ResourceType.GROUP: GROUP}


class GrantedPermissions:
    """Authorizer with ACLs from a test."""

    is_on = True

    def __init__(self) -> None:
        self.give(())

    def give(self, needs: Iterable[Needs], host: str = HOST, **names: str) -> None:
        """Grants permissions. `names`: resource names by type; the default is the secret ones."""
        lists: dict[Resource, tuple[AclEntry, ...]] = {}
        for need in needs:
            name = names.get(need.resource.name.lower(), NAMES[need.resource])
            entry = AclEntry(EVE, host, need.operation, Permission.ALLOW)
            resource = Resource(need.resource, name)
            lists[resource] = (*lists.get(resource, ()), entry)
        # Simulated nodes do not authenticate to each other.
        self._rules = AccessControl(lists, super_users=[ANONYMOUS])

    def allows(
        self,
        principal: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        host: str = "*",
    ) -> bool:
        return self._rules.allows(principal, operation, resource, name, host)

    def allows_some(
        self, principal: str, operation: Operation, resource: ResourceType, host: str = "*"
    ) -> bool:
        return self._rules.allows_some(principal, operation, resource, host)


class AllowAll:
    """Authorizer that allows everything."""

    is_on = False

    def allows(
        self,
        principal: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        host: str = "*",
    ) -> bool:
        return True

    def allows_some(
        self, principal: str, operation: Operation, resource: ResourceType, host: str = "*"
    ) -> bool:
        return True


def without_one(needs: tuple[Needs, ...]) -> list[tuple[Needs, ...]]:
    """Returns all variants of `needs` with one permission missing."""
    return [needs[:at] + needs[at + 1 :] for at in range(len(needs))]
