"""The table of the console's own routes, below `/console/api`.

They serve its pages and change with them: programs should use the routes of `http.table`, which
the pages use as well for all that is there.
"""

from penstock.console.routes import (
    entering,
    groups,
    letters,
    messages,
    nodes,
    overview,
    pipelines,
    queues,
    security,
    topics,
)
from penstock.console.row import Row

FAMILIES = (
    entering,
    overview,
    topics,
    messages,
    groups,
    queues,
    letters,
    nodes,
    pipelines,
    security,
)
ROWS: tuple[Row, ...] = tuple(row for family in FAMILIES for row in family.ROWS)
