"""What an assignor is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Spec:
    """Members, their topics and what they had. Topic ids stand in for topics that exist."""

    subscriptions: Mapping[str, frozenset[bytes]]
    """By member: ids of existing topics."""
    partitions: Mapping[bytes, int]
    """By topic id: how many partitions. Ordered by topic name."""
    previous: Mapping[str, set[tuple[bytes, int]]]
    """By member: the last target; may name topics and members that are gone."""
    instance_ids: Mapping[str, str | None]
    """By member: its static name. Static members come first in every order."""

    @cached_property
    def order(self) -> list[str]:
        """Static members by their names, then the others by their ids."""

        def rank(member: str) -> tuple[bool, str]:
            instance_id = self.instance_ids.get(member)
            return (instance_id is None, instance_id or member)

        return sorted(self.subscriptions, key=rank)
