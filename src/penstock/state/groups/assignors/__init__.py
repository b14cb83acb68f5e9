"""Server-side assignors by name: members and topics in, partitions per member out.

An assignor is a pure function. It assigns every partition of a subscribed topic to exactly one
member that subscribes to the topic.
"""

from collections.abc import Callable, Mapping
from typing import Final

from penstock.state.groups.assignors.range import assign_range
from penstock.state.groups.assignors.spec import Spec
from penstock.state.groups.assignors.uniform import assign_uniform

Assignor = Callable[[Spec], Mapping[str, set[tuple[bytes, int]]]]

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
