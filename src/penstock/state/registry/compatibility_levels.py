"""Compatibility levels and modes, by Confluent's names."""

from enum import StrEnum


class Level(StrEnum):
    """Directions in which the schemas of a subject must be able to read each other's data."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """True if the level applies to every version that is not deleted, not just the last one."""
        return self.name.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        """True if the new schema must read data written with the old ones."""
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        """True if the old schemas must read data written with the new one."""
        return self.name.startswith(("FORWARD", "FULL"))


class SubjectMode(StrEnum):
    """Operations allowed on a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """Only for the whole registry: read-only regardless of the modes of subjects."""
    IMPORT = "IMPORT"
    """Schemas are imported with the ids and versions of another registry; unchecked."""


DEFAULT_LEVEL = Level.BACKWARD
DEFAULT_MODE = SubjectMode.READWRITE
