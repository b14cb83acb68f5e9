"""The table of the HTTP door's routes: what is not listed here is not served.

A new family is a module in `http.routes` with its `ENDPOINTS`, and its name here.
"""

from penstock.http.endpoint import Endpoint
from penstock.http.routes import (
    deadletters,
    errands,
    groups,
    messages,
    offsets,
    polling,
    queues,
    replays,
    scaling,
    settling,
    streaming,
    topics,
)

FAMILIES = (
    messages,
    polling,
    streaming,
    settling,
    offsets,
    topics,
    groups,
    scaling,
    queues,
    deadletters,
    errands,
    replays,
)

ENDPOINTS: tuple[Endpoint, ...] = tuple(row for family in FAMILIES for row in family.ENDPOINTS)
