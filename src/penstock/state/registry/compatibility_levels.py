"""Compatibility levels and modes, by Confluent's names."""

from enum import StrEnum


class Level(StrEnum):
    """Which schemas of a subject must be able to read what which others wrote."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Against every version that is not deleted, instead of the last one."""
        return self.name.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        """The new schema reads what the old ones wrote."""
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        """The old schemas read what the new one writes."""
        return self.name.startswith(("FORWARD", "FULL"))


class SubjectMode(StrEnum):
    """What may be done to a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """Of the whole registry: read-only whatever single subjects say."""
    IMPORT = "IMPORT"
    """Schemas come with their ids and versions, as another registry gave them; unchecked."""


DEFAULT_LEVEL = Level.BACKWARD
DEFAULT_MODE = SubjectMode.READWRITE
