"""Route table of the console, below `/console/api`.

These routes serve the console's pages and change with them. Programs should use the routes of
`gateway.rest.route_table`, which the pages use, too, where they suffice.
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
