"""Tables of all APIs by key: request class and response class.

`broker.api.routes` lists the APIs and versions that a broker serves.
"""

from typing import Any, Final

from penstock.wire.messages import (
    acls,
    api_versions,
    classic_groups,
    cluster,
    configs,
    consumer_groups,
    fetch,
    list_offsets,
    log_dirs,
    metadata,
    offset_commit,
    produce,
    quotas,
    reassignments,
    sasl,
    share,
    share_offsets,
    topics,
    transactions,
)
from penstock.wire.messages.internal import admin, queue_admin, queues
from penstock.wire.schema import wire_of

_FAMILIES: Final = (
    acls,
    admin,
    api_versions,
    cluster,
    offset_commit,
    configs,
    consumer_groups,
    fetch,
    classic_groups,
    transactions,
    log_dirs,
    metadata,
    list_offsets,
    produce,
    queue_admin,
    queues,
    quotas,
    reassignments,
    sasl,
    share,
    share_offsets,
    topics,
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
