"""Who may write under a transactional id: identities given once, and the older ones fenced.

Named promises:

- identity: a producer id and epoch are given twice, or an epoch goes back: whoever asks when a
  later one is known gets an earlier one (of those who ask at once, any may be first);
- fencing: a request under an identity succeeds that was sent after another instance had been
  given a later one.
"""

from dataclasses import dataclass, field

from simulation.checkers.witness import Witness


@dataclass(slots=True)
class IdentityChecker:
    """All transactional ids of a run."""

    world: Witness
    given: dict[tuple[int, int], str] = field(default_factory=dict)
    _granted: dict[str, list[tuple[int, int, int, float]]] = field(default_factory=dict)
    """By transactional id: instance, producer id, epoch, and when it knew."""

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
        """An instance was given its identity; `is_new` unless it named the one it had."""
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
        """A request of this instance, under this identity, was done."""
        for other, its_id, its_epoch, since in self._granted.get(name, ()):
            is_later = other != instance and its_id == producer_id and its_epoch > epoch
            if is_later and since < asked_at:
                self._violate(
                    "fencing",
                    f"{what} of {name} by {instance} at epoch {epoch}, but {other} has {its_epoch}",
                )

    def _violate(self, name: str, text: str) -> None:
        self.world.violate(name, text)
