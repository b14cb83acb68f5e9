"""Checker of producer identities: each is assigned once, and older ones are fenced.

Violations:

- identity: a producer id and epoch are assigned twice, or an epoch decreases: a request sent after
  the reply with a later epoch gets an earlier one (concurrent requests may have any order);
- fencing: a request succeeds although it was sent after another instance had received a later
  identity.
"""

from dataclasses import dataclass, field

from simulation.checkers.context import CheckerContext


@dataclass(slots=True)
class IdentityChecker:
    """All transactional ids of a run."""

    world: CheckerContext
    given: dict[tuple[int, int], str] = field(default_factory=dict)
    _granted: dict[str, list[tuple[int, int, int, float]]] = field(default_factory=dict)
    """Instance, producer id, epoch and time of the reply, by transactional id."""

    def initialised(
        self,
        name: str,
        instance: int,
        producer_id: int,
        epoch: int,
        asked_at: float,
        *,
        is_new: bool,
    ) -> None:
        """Checks an assigned identity; `is_new` unless the request named the previous one."""
        identity = (producer_id, epoch)
        if is_new and identity in self.given:
            self._violate("identity", f"{name} got {identity}, as had {self.given[identity]}")
        self.given[identity] = name
        for _, its_id, known, since in self._granted.get(name, ()):
            if its_id == producer_id and known > epoch and since < asked_at:
                self._violate("identity", f"{name} got epoch {epoch} after {known}")
        grant = (instance, producer_id, epoch, self.world.now())
        self._granted.setdefault(name, []).append(grant)

    def succeeded(
        self, name: str, instance: int, producer_id: int, epoch: int, asked_at: float, what: str
    ) -> None:
        """Checks a successful request of an instance with this identity."""
        for other, its_id, its_epoch, since in self._granted.get(name, ()):
            is_later = other != instance and its_id == producer_id and its_epoch > epoch
            if is_later and since < asked_at:
                self._violate(
                    "fencing",
                    f"{what} of {name} by {instance} at epoch {epoch}, but {other} has {its_epoch}",
                )

    def _violate(self, name: str, text: str) -> None:
        self.world.violate(name, text)
