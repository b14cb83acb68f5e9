"""Input of an assignor."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Spec:
    """Members, their subscriptions and previous targets. Only existing topics have an id here."""

    subscriptions: Mapping[str, frozenset[bytes]]
    """Ids of existing topics, by member."""
    partitions: Mapping[bytes, int]
    """Number of partitions, by topic id. Ordered by topic name."""
    previous: Mapping[str, set[tuple[bytes, int]]]
    """Last target, by member; may contain topics and members that are gone."""
    instance_ids: Mapping[str, str | None]
    """Instance id, by member. Static members come first in every order."""

    @cached_property
    def order(self) -> list[str]:
        """Static members by instance id, then dynamic ones by member id."""

        def rank(member: str) -> tuple[bool, str]:
            instance_id = self.instance_ids.get(member)
            return (instance_id is None, instance_id or member)

        return sorted(self.subscriptions, key=rank)
