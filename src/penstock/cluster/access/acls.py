"""Changes to access control lists (KIP-140, KIP-290): one key per resource, replaced as a whole.

Owns: the commands and their bounds. A binding that exists is not added twice; an empty list is
deleted. Several bindings of one resource are one change. Those of different resources are changed
one after the other, so a failure in between leaves the earlier ones in force.
Elsewhere: evaluation of bindings (`security.acls`), permission to change them (`api`).
"""

from collections.abc import Callable, Iterable, Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Delete, Put, Store, StoreEntry
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.store_keys import AclRecord, AclsRecord
from penstock.security.acls import AclEntry, Filter, Resource

RESOURCES_MAX = 10_000
ENTRIES_MAX = 1_000
NAME_BYTES_MAX = 1_024

AclEdit = Callable[[tuple[AclRecord, ...]], tuple[AclRecord, ...]]


async def add(store: Store, image: Image, resource: Resource, entries: Iterable[AclEntry]) -> int:
    """Adds bindings of a resource; returns the revision at which they are in force."""
    if resource not in image.acls and len(image.acls) >= RESOURCES_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"{RESOURCES_MAX} resources have ACLs already; use prefixed patterns",
        )
    wanted = [_record(entry) for entry in entries]

    def edit(present: tuple[AclRecord, ...]) -> tuple[AclRecord, ...]:
        added = (*present, *(record for record in wanted if record not in present))
        if len(added) > ENTRIES_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"more than {ENTRIES_MAX} bindings for {resource.name!r}",
            )
        return tuple(dict.fromkeys(added))

    return await _edit(store, resource, edit)


async def remove(
    store: Store, image: Image, filters: Sequence[Filter]
) -> tuple[list[list[tuple[Resource, AclEntry]]], int]:
    """Removes the bindings that match; returns those of each filter, and the revision."""
    matched: list[list[tuple[Resource, AclEntry]]] = [[] for _ in filters]
    gone: dict[Resource, dict[AclRecord, None]] = {}
    for at, wanted in enumerate(filters):
        for resource, entry in matching(image, wanted):
            matched[at].append((resource, entry))
            gone.setdefault(resource, {})[_record(entry)] = None
    revision = 0
    for resource, records in gone.items():

        def edit(
            present: tuple[AclRecord, ...], records: dict[AclRecord, None] = records
        ) -> tuple[AclRecord, ...]:
            return tuple(record for record in present if record not in records)

        revision = max(revision, await _edit(store, resource, edit))
    return matched, revision


def matching(image: Image, wanted: Filter) -> Iterable[tuple[Resource, AclEntry]]:
    """Bindings that match a filter, by resource."""
    for resource in sorted(image.acls):
        if wanted.takes_resource(resource):
            for entry in image.acls[resource]:
                if wanted.takes(entry):
                    yield resource, entry


async def _edit(store: Store, resource: Resource, edit: AclEdit) -> int:
    key = store_keys.acls_key(resource.type, resource.pattern, resource.name)

    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        present = store_keys.decode(AclsRecord, entry.value).entries if entry else ()
        wanted = edit(present)
        if wanted == present:
            return []
        return [Put(key, store_keys.encode(AclsRecord(wanted)))] if wanted else [Delete(key)]

    return await compare_and_swap.swap(store, [key], decide)


def _record(entry: AclEntry) -> AclRecord:
    return AclRecord(entry.principal, entry.host, entry.operation, entry.permission)
