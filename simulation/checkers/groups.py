"""One group, as its members see it: who owns what, in which generation, and who is forgotten.

Members tell when they asked (before the request left) and what they were answered. Named promises:

- owners: two members hold one partition at the same time, and the coordinator confirmed both.
  A member's hold begins when it is told, and is confirmed up to the moment at which it last asked
  with it and was answered that all is well. (A member that was expired meanwhile is not confirmed:
  what a zombie believes does no harm, since it cannot commit.)
- generation: a generation begins twice, with two leaders, or the number goes back.
- forgotten: a member that kept its session is not known any more.
- fencing: something under an identity that is over was accepted.
"""

from dataclasses import dataclass, field

from penstock.coordinator.runtime.steady_clock import SLEW
from simulation.checkers.witness import Witness

Place = tuple[str, int]
STEADY = 1 - SLEW


@dataclass(slots=True)
class Hold:
    """A member's claim to one partition."""

    since: float
    confirmed: float = -1.0


@dataclass(slots=True)
class GroupChecker:
    """What is known about one group."""

    world: Witness
    group: str
    number: int = 0
    """The highest generation or epoch anybody was told."""
    leaders: dict[int, str] = field(default_factory=dict)
    statics: dict[str, None] = field(default_factory=dict)
    """Instance ids that members have."""
    holds: dict[Place, dict[str, Hold]] = field(default_factory=dict)
    _numbers: list[tuple[float, int]] = field(default_factory=list)

    # -- ownership --------------------------------------------------------------------------

    def granted(self, member_id: str, before: set[Place], after: set[Place]) -> None:
        """A member was told what it owns from now on."""
        now = self.world.now()
        for place in sorted(after - before):
            self.holds.setdefault(place, {})[member_id] = Hold(now)

    def confirmed(self, member_id: str, owned: set[Place], asked_at: float) -> None:
        """A member that holds `owned` asked, and was told that all is well."""
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
        """A member was told a generation or epoch; `is_group_wide` if it is the group's newest."""
        if is_group_wide:
            known = max((n for at, n in self._numbers if at < asked_at), default=0)
            if number < known:
                self._violate("generation", f"{number} after {known} had been told")
            self._numbers.append((self.world.now(), number))
        self.number = max(self.number, number)

    def led(self, generation: int, leader: str) -> None:
        """A member was told who leads a classic generation.

        A static leader may come back under another member id, which begins with its instance id.
        """
        leader = next((name for name in self.statics if leader.startswith(f"{name}-")), leader)
        known = self.leaders.setdefault(generation, leader)
        if known != leader:
            self._violate("generation", f"{generation} is led by {known} and by {leader}")

    # -- membership -------------------------------------------------------------------------

    def forgot(self, member_id: str, silent_s: float, session_s: float) -> None:
        """The coordinator does not know a member that asked `silent_s` ago and was known then.

        Coordinators may run a tenth fast, to meet a wall clock that was set (`SteadyTime`).
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
