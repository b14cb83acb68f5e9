"""The table of the console's own routes, below `/console/api`.

They serve its pages and change with them: programs should use the routes of
`gateway.rest.route_table`, which the pages use as well for all that is there.
"""

from penstock.gateway.console.route_row import ConsoleRow
from penstock.gateway.console.routes import (
    dead_letters,
    groups,
    login,
    messages,
    nodes,
    overview,
    pipelines,
    queues,
    security,
    topics,
)

FAMILIES = (
    login,
    overview,
    topics,
    messages,
    groups,
    queues,
    dead_letters,
    nodes,
    pipelines,
    security,
)
ROWS: tuple[ConsoleRow, ...] = tuple(row for family in FAMILIES for row in family.ROWS)
