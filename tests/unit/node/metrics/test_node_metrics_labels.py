"""The number of children of every metric is bounded on purpose.

A label whose values come from users (topics, groups) is bounded where it is counted; those bounds
have tests of their own: `broker.api.metrics`, `coordinator.group_lag`,
`coordinator.queues.queue_metrics`, `node.metrics.node_metrics`. This one sees that no label comes
in without a word on it.
"""

from docs import gen
from penstock.base.errors import ErrorCode
from penstock.broker.api.routes import ROUTES
from penstock.gateway.rest.route_table import ENDPOINTS

NAMED = 201
"""200 names and the rest."""
BOUNDS = {
    "api": len(ROUTES),
    "route": len(ENDPOINTS),
    "status": 60,
    "error": len(ErrorCode),
    "topic": NAMED,
    "group": NAMED,
    "partition": 200,
    "kind": 20,
    "state": 5,
    "what": 5,
    "how": 5,
    "at": 5,
    "condition": 10,
    "protocol": 5,
}
# Only the partitions with the most lag are reported: that many children, whatever the labels allow.
TOGETHER = {("group", "topic"): NAMED, ("group", "topic", "partition"): 200}
CHILDREN_MAX = 20_000


def test_every_label_is_bounded() -> None:
    for family in gen.families():
        unknown = [label for label in family.labels if label not in BOUNDS]
        assert not unknown, f"{family.name}: how many {unknown} can there be?"


def test_number_of_children_per_metric_is_limited() -> None:
    for family in gen.families():
        most = 1
        rest = family.labels
        for labels, bound in sorted(TOGETHER.items(), key=lambda item: -len(item[0])):
            if rest[: len(labels)] == labels:
                most, rest = bound, rest[len(labels) :]
                break
        for label in rest:
            most *= BOUNDS[label]
        assert most <= CHILDREN_MAX, f"{family.name} may have {most} children"
