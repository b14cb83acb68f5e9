"""Every API we speak, by its key: the class of the request, and of the response.

Which of them a broker serves, and at which versions, is `api.routes`' business.
"""

from typing import Any, Final

from penstock.wire.messages import (
    access_keys,
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

_FAMILIES: Final = (
    access_keys,
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
