"""Maximum matching, compared with exhaustive search."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.registry.jsonschema.compatibility import matching_size
from penstock.state.registry.limits import StepBudget

EDGES = st.integers(1, 5).flatmap(
    lambda count: st.lists(
        st.lists(st.integers(0, 4), unique=True, max_size=count), min_size=1, max_size=5
    )
)


def by_trying(edges: list[list[int]]) -> int:
    best = 0
    for order in permutations(range(5)):
        pairs = zip(edges, order, strict=False)
        best = max(best, sum(right in row for row, right in pairs))
    return best


@given(EDGES)
def test_matching_is_maximal(edges: list[list[int]]) -> None:
    assert matching_size(edges, StepBudget()) == by_trying(edges)
