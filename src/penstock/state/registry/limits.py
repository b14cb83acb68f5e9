"""How much a schema, a subject and the registry may hold, and how much thinking one is worth.

Everything a client sends is counted against one of these before it is believed. `StepBudget` bounds
work whose amount the size of a schema does not: comparing alternatives with alternatives.
"""

from penstock.state.registry.errors import RegistryErrorCode, Rejected, invalid

SCHEMA_BYTES_MAX = 1_000_000
"""Of one schema's text."""
SCHEMAS_MAX = 200_000
"""Versions of all subjects together, deleted ones included."""
VERSIONS_MAX = 5_000
"""Of one subject."""
TOTAL_BYTES_MAX = 512 << 20
"""Of all schemas' texts together: they are kept in memory."""
SETTINGS_MAX = 100_000
"""Subjects that have a level or a mode of their own, and may have no schema."""
SUBJECT_CHARS_MAX = 512
"""Of a subject's name in its context."""
CONTEXT_CHARS_MAX = 255
CONTEXTS_MAX = 1_000
REFERENCES_MAX = 100
"""Of one schema, directly."""
REFERENCE_CHARS_MAX = 1_000
"""Of the name that a schema has for another one."""
REFERENCE_DEPTH_MAX = 20
REFERENCED_MAX = 500
"""Schemas that one schema needs, directly or through others."""
DEPTH_MAX = 100
"""How deep one schema may be nested."""
PATTERN_CHARS_MAX = 1_000
"""Of a regular expression; they run on RE2, in linear time."""
STEPS_MAX = 100_000
"""Of a comparison of two schemas."""
COMPARED_BYTES_MAX = 32 << 20
"""Of the schemas that a new one is compared with."""
EXTRAS_BYTES_MAX = 64 << 10
"""Of a schema's metadata and rules."""


class StepBudget:
    """Steps that are left for one schema."""

    __slots__ = ("left",)

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise invalid("it is too complex to be compared")


def check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise invalid(f"it is nested deeper than {DEPTH_MAX} levels")


def check_size(text: str) -> None:
    if len(text) > SCHEMA_BYTES_MAX or len(text.encode("utf-8", "replace")) > SCHEMA_BYTES_MAX:
        raise Rejected(
            RegistryErrorCode.SCHEMA_TOO_LARGE,
            f"a schema may have {SCHEMA_BYTES_MAX} bytes at most",
        )
