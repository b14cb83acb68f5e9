"""Route table of the REST API: only the routes listed here are served.

A new family is a module in this package with its `ENDPOINTS`, and its name here.
"""

from penstock.gateway.rest import (
    background_jobs,
    dead_letters,
    groups,
    poll,
    publish,
    queues,
    replay,
    settle,
    stream,
    topics,
)
from penstock.gateway.rest.endpoint import RestEndpoint

FAMILIES = (
    publish,
    poll,
    stream,
    settle,
    topics,
    groups,
    queues,
    dead_letters,
    background_jobs,
    replay,
)

ENDPOINTS: tuple[RestEndpoint, ...] = tuple(row for family in FAMILIES for row in family.ENDPOINTS)
