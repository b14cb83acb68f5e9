"""Every message we speak, by api key: one class for the request, one for the response.

Owns the two tables; the classes live in the family modules beside this file, under Kafka's names
with Kafka's fields in snake case. A nested struct keeps Kafka's name where only one message has
it, and is prefixed with its API's (or its message's) where several do. Versions are those of
Kafka 4.3, the records of magic 0 and 1 (Produce 0-2) left out. Keys from `OWN_KEYS` on are ours:
nodes use them among themselves.

Which of them a broker serves, and at which versions, is `api.routes`' business.
"""

from typing import Any, Final

from penstock.wire.messages import (
    acls,
    api_versions,
    audit,
    cluster,
    committed,
    configs,
    consumer_groups,
    encryption,
    fetch,
    groups,
    inter_broker,
    log_dirs,
    metadata,
    offsets,
    produce,
    queue_admin,
    queues,
    quotas,
    reassignments,
    registry,
    security,
    share,
    share_offsets,
    topics,
    txns,
)
from penstock.wire.schema import wire_of

OWN_KEYS: Final = 30_000

_FAMILIES: Final = (
    acls,
    api_versions,
    audit,
    cluster,
    committed,
    configs,
    consumer_groups,
    encryption,
    fetch,
    groups,
    inter_broker,
    log_dirs,
    metadata,
    offsets,
    produce,
    queue_admin,
    queues,
    registry,
    quotas,
    reassignments,
    security,
    share,
    share_offsets,
    topics,
    txns,
)


def _table(suffix: str) -> dict[int, type[Any]]:
    found = {
        wire_of(declared).key: declared
        for family in _FAMILIES
        for name, declared in vars(family).items()
        if name.endswith(suffix) and isinstance(declared, type) and wire_of(declared).key >= 0
    }
    return dict(sorted(found.items()))


REQUESTS: Final[dict[int, type[Any]]] = _table("Request")
RESPONSES: Final[dict[int, type[Any]]] = _table("Response")
