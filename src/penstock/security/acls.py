"""Access control lists: the bindings, which of them apply, and the resulting decision.

Kafka's rules: a binding applies to one resource by name, to every resource of a type (`*`), or to
all whose names begin with a prefix. One applicable DENY decides; else one ALLOW is needed. The
permission to read, write, delete or alter includes the permission to describe; altering configs
includes describing them; denials include nothing. Super users may do everything.

Bounds: at most `CACHE_MAX` decisions are cached; the lists are bounded where they are created.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.security.acl_types import (
    ALL_OPERATIONS,
    ANY,
    ANY_PRINCIPAL,
    WILDCARD,
    Operation,
    Pattern,
    Permission,
    ResourceType,
)

CACHE_MAX = 10_000
IMPLIES: Mapping[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Operations, each with those whose permission includes it."""


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """Scope of a list: a type, and names that are equal to this one or begin with it."""

    type: int
    name: str
    pattern: int = Pattern.LITERAL

    def covers(self, name: str) -> bool:
        if self.pattern == Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


@dataclass(frozen=True, slots=True, order=True)
class AclEntry:
    """One entry of a list: principal, host, operation, and permission."""

    principal: str
    host: str
    operation: int
    permission: int

    def is_about(self, principal: str, host: str) -> bool:
        return self.principal in (principal, ANY_PRINCIPAL) and self.host in (host, WILDCARD)


@dataclass(frozen=True, slots=True)
class Filter:
    """Selection of bindings; None and `ANY` match everything."""

    resource_type: int = ANY
    name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def takes_resource(self, resource: Resource) -> bool:
        if self.resource_type not in (ANY, resource.type):
            return False
        if self.pattern == Pattern.MATCH:
            return self.name is None or resource.covers(self.name)
        if self.pattern not in (ANY, resource.pattern):
            return False
        return self.name is None or self.name == resource.name

    def takes(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )


Lists = Mapping[Resource, tuple[AclEntry, ...]]


@dataclass(slots=True)
class _Lists:
    """Lists of one type of resource, indexed for lookup by name."""

    literal: dict[str, tuple[AclEntry, ...]] = field(default_factory=dict)
    prefixed: dict[str, tuple[AclEntry, ...]] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    """Lengths of the existing prefixes: a name is looked up once for each."""

    def applying(self, name: str) -> Iterator[AclEntry]:
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.lengths:
            if length <= len(name):
                yield from self.prefixed.get(name[:length], ())

    @property
    def entries(self) -> Iterator[tuple[bool, str, AclEntry]]:
        for name, entries in self.literal.items():
            for entry in entries:
                yield False, name, entry
        for name, entries in self.prefixed.items():
            for entry in entries:
                yield True, name, entry


class AccessControl:
    """Decisions by the bindings in force."""

    def __init__(
        self,
        lists: Lists,
        *,
        super_users: Iterable[str] = (),
        allows_unlisted: bool = False,
    ) -> None:
        """`allows_unlisted`: a resource without any binding is open to every principal."""
        self._super_users = frozenset(super_users)
        self._allows_unlisted = allows_unlisted
        self._types: dict[int, _Lists] = {}
        self._known: dict[tuple[str, str, int, int, str], bool] = {}
        for resource, entries in sorted(lists.items()):
            found = self._types.setdefault(resource.type, _Lists())
            table = found.prefixed if resource.pattern == Pattern.PREFIXED else found.literal
            table[resource.name] = entries
        for found in self._types.values():
            found.lengths = tuple(sorted({len(prefix) for prefix in found.prefixed}))

    def allows(
        self,
        principal: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        host: str = WILDCARD,
    ) -> bool:
        if principal in self._super_users:
            return True
        asked = (principal, host, operation, resource, name)
        answer = self._known.get(asked)
        if answer is None:
            answer = self._decide(principal, host, operation, resource, name)
            if len(self._known) >= CACHE_MAX:
                self._known.clear()
            self._known[asked] = answer
        return answer

    def _decide(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        lists = self._types.get(resource)
        applying = () if lists is None else tuple(lists.applying(name))
        if not applying:
            return self._allows_unlisted
        enough = (operation, ALL_OPERATIONS, *IMPLIES.get(operation, ()))
        is_allowed = False
        for entry in applying:
            if not entry.is_about(principal, host):
                continue
            if entry.permission == Permission.DENY:
                if entry.operation in (operation, ALL_OPERATIONS):
                    return False
            elif entry.operation in enough:
                is_allowed = True
        return is_allowed

    def allows_some(
        self,
        principal: str,
        operation: Operation,
        resource: ResourceType,
        host: str = WILDCARD,
    ) -> bool:
        """True if there is any name for which the operation would be allowed (KIP-679)."""
        if principal in self._super_users:
            return True
        lists = self._types.get(resource)
        if lists is None:
            return self._allows_unlisted
        enough = (operation, ALL_OPERATIONS, *IMPLIES.get(operation, ()))
        for is_prefix, name, entry in lists.entries:
            if (
                entry.permission == Permission.ALLOW
                and entry.operation in enough
                and entry.is_about(principal, host)
                and not self._is_denied(lists, principal, host, operation, name, is_prefix)
            ):
                return True
        return False

    def _is_denied(
        self,
        lists: _Lists,
        principal: str,
        host: str,
        operation: Operation,
        name: str,
        is_prefix: bool,
    ) -> bool:
        """True if other bindings deny everything that such a binding allows."""
        for denies_prefix, denied, entry in lists.entries:
            if entry.permission != Permission.DENY or not entry.is_about(principal, host):
                continue
            if entry.operation not in (operation, ALL_OPERATIONS):
                continue
            if not denies_prefix and denied == WILDCARD:
                return True
            if denies_prefix and name != WILDCARD and name.startswith(denied):
                return True
            if not denies_prefix and not is_prefix and denied == name:
                return True
        return False
