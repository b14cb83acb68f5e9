"""Checker of one group from its members' view: ownership, generations, sessions and fencing.

Members report the time of each request (before sending it) and the reply. Violations:

- owners: two members own one partition at the same time, and the coordinator confirmed both.
  Ownership starts with the assignment, and is confirmed up to the last successful request that
  the member sent with it. (An expired member is not confirmed: a zombie does no harm, since it
  cannot commit.)
- generation: a generation starts twice, has two leaders, or the number decreases.
- forgotten: the coordinator does not know a member that kept its session.
- fencing: the coordinator accepted a request with an outdated identity.
"""

from dataclasses import dataclass, field

from penstock.coordinator.runtime.steady_clock import SLEW
from simulation.checkers.context import CheckerContext

Place = tuple[str, int]
STEADY = 1 - SLEW


@dataclass(slots=True)
class Hold:
    """Ownership of one partition by a member."""

    since: float
    confirmed: float = -1.0


@dataclass(slots=True)
class GroupChecker:
    """Reports of one group's members."""

    world: CheckerContext
    group: str
    number: int = 0
    """Highest generation or epoch in any reply."""
    leaders: dict[int, str] = field(default_factory=dict)
    statics: dict[str, None] = field(default_factory=dict)
    """Instance ids of static members."""
    holds: dict[Place, dict[str, Hold]] = field(default_factory=dict)
    _numbers: list[tuple[float, int]] = field(default_factory=list)

    # -- ownership --------------------------------------------------------------------------

    def granted(self, member_id: str, before: set[Place], after: set[Place]) -> None:
        """Records a member's new assignment."""
        now = self.world.now()
        for place in sorted(after - before):
            self.holds.setdefault(place, {})[member_id] = Hold(now)

    def confirmed(self, member_id: str, owned: set[Place], asked_at: float) -> None:
        """Confirms ownership of `owned` after a successful request sent at `asked_at`."""
        for place in sorted(owned):
            holds = self.holds.get(place, {})
            mine = holds.get(member_id)
            if mine is None:
                continue
            mine.confirmed = max(mine.confirmed, asked_at)
            for other_id, other in holds.items():
                if other_id == member_id or other.confirmed < 0:
                    continue
                if max(mine.since, other.since) < min(mine.confirmed, other.confirmed):
                    self._violate(
                        "owners", f"{place} is held by {member_id} and by {other_id} at once"
                    )

    # -- numbers ----------------------------------------------------------------------------

    def numbered(self, number: int, asked_at: float, *, is_group_wide: bool) -> None:
        """Checks a generation or epoch in a reply; `is_group_wide`: it is the group's newest."""
        if is_group_wide:
            known = max((n for at, n in self._numbers if at < asked_at), default=0)
            if number < known:
                self._violate("generation", f"{number} after {known}")
            self._numbers.append((self.world.now(), number))
        self.number = max(self.number, number)

    def led(self, generation: int, leader: str) -> None:
        """Checks the leader of a classic generation in a reply.

        A static leader may rejoin with another member id, which starts with its instance id.
        """
        leader = next((name for name in self.statics if leader.startswith(f"{name}-")), leader)
        known = self.leaders.setdefault(generation, leader)
        if known != leader:
            self._violate("generation", f"{generation} is led by {known} and by {leader}")

    # -- membership -------------------------------------------------------------------------

    def forgot(self, member_id: str, silent_s: float, session_s: float) -> None:
        """Checks the expiry of a member whose last successful request was `silent_s` ago.

        A coordinator's clock may run a tenth fast to catch up with a changed wall clock
        (`SteadyTime`).
        """
        is_early = silent_s < session_s * STEADY
        self.world.reached("member forgotten" if is_early else "member expired")
        if is_early:
            self._violate(
                "forgotten", f"{member_id} after {silent_s:.3f} s of a {session_s:g} s session"
            )

    def accepted_old(self, member_id: str, number: int, what: str) -> None:
        self._violate("fencing", f"{what} of {member_id} at {number} was accepted; it was over")

    def _violate(self, name: str, text: str) -> None:
        self.world.violate(name, f"group {self.group}: {text}")
