"""Limits on schemas, subjects and the registry, and on the work that one schema may cause.

Everything a client sends is checked against one of these before it is used. `StepBudget` limits
work that is not bounded by the size of a schema: comparing alternatives with alternatives.
"""

from penstock.state.registry.errors import RegistryErrorCode, Rejected, invalid

SCHEMA_BYTES_MAX = 1_000_000
"""Maximum size of one schema's text."""
SCHEMAS_MAX = 200_000
"""Maximum versions of all subjects together, deleted ones included."""
VERSIONS_MAX = 5_000
"""Maximum versions of one subject."""
TOTAL_BYTES_MAX = 512 << 20
"""Maximum size of all schemas' texts together: they are kept in memory."""
SETTINGS_MAX = 100_000
"""Maximum subjects with their own level or mode; they may have no schema."""
SUBJECT_CHARS_MAX = 512
"""Maximum length of a subject's name in its context."""
CONTEXT_CHARS_MAX = 255
CONTEXTS_MAX = 1_000
REFERENCES_MAX = 100
"""Maximum direct references of one schema."""
REFERENCE_CHARS_MAX = 1_000
"""Maximum length of a reference's name."""
REFERENCE_DEPTH_MAX = 20
REFERENCED_MAX = 500
"""Maximum schemas that one schema needs, directly or transitively."""
DEPTH_MAX = 100
"""Maximum nesting of one schema."""
PATTERN_CHARS_MAX = 1_000
"""Maximum length of a regular expression; they run on RE2, in linear time."""
STEPS_MAX = 100_000
"""Maximum steps of a comparison of two schemas."""
COMPARED_BYTES_MAX = 32 << 20
"""Maximum size of all schemas that a new one is compared with."""
EXTRAS_BYTES_MAX = 64 << 10
"""Maximum size of a schema's metadata and rules."""


class StepBudget:
    """Remaining steps of one comparison."""

    __slots__ = ("left",)

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise invalid(f"too complex to be compared: more than {STEPS_MAX} steps")


def check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise invalid(f"nested deeper than {DEPTH_MAX} levels")


def check_size(text: str) -> None:
    if len(text) > SCHEMA_BYTES_MAX or len(text.encode("utf-8", "replace")) > SCHEMA_BYTES_MAX:
        raise Rejected(
            RegistryErrorCode.SCHEMA_TOO_LARGE,
            f"the schema is too large: at most {SCHEMA_BYTES_MAX} bytes",
        )
