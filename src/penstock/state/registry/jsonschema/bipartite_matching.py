"""Maximum matching in a bipartite graph.

Augmenting paths, without recursion: a schema may have many alternatives. Each visit of an edge
counts against the step budget.
"""

from penstock.state.registry.limits import StepBudget


def matching_size(edges: list[list[int]], budget: StepBudget) -> int:
    """Size of a maximum matching. `edges`: for each left node, the right nodes it may pair with."""
    paired_with: dict[int, int] = {}
    return sum(_augment(left, edges, paired_with, budget) for left in range(len(edges)))


def _augment(
    start: int, edges: list[list[int]], paired_with: dict[int, int], budget: StepBudget
) -> bool:
    """Pairs `start`, re-pairing other nodes if necessary; True if it succeeded."""
    came_from: dict[int, int] = {}
    waiting = [start]
    while waiting:
        left = waiting.pop()
        budget.spend(1 + len(edges[left]) // 16)
        for right in edges[left]:
            if right in came_from:
                continue
            came_from[right] = left
            if right not in paired_with:
                _flip(right, start, came_from, paired_with)
                return True
            waiting.append(paired_with[right])
    return False


def _flip(end: int, start: int, came_from: dict[int, int], paired_with: dict[int, int]) -> None:
    partners = {left: right for right, left in paired_with.items()}
    right = end
    while True:
        left = came_from[right]
        freed = partners.get(left)
        paired_with[right] = left
        if left == start or freed is None:
            return
        right = freed
