"""Parsing of a new schema, and its comparison with earlier versions.

This may take a while, so a worker does it, on a `CheckPlan` that holds all it needs. The result
returns to the state machine as a `CompatibilityVerdict`.

Compatibility levels and modes, by Confluent's names.
"""

import hashlib
import uuid
from enum import StrEnum
from typing import Any, NamedTuple

from penstock.state.registry.formats import parse, unreadable
from penstock.state.registry.json_text import write_sorted_json
from penstock.state.registry.parsed_schemas import Parsed, Reference, SchemaSource
from penstock.state.registry.subject_names import DEFAULT_CONTEXT, short_for


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


class CheckPlan(NamedTuple):
    """A schema, and the versions it must be compatible with."""

    revision: int
    """Revision of the state that the plan was made from."""
    source: SchemaSource
    extras: tuple[Any, Any]
    """Metadata and rules."""
    normalizes: bool
    level: Level
    previous: tuple[tuple[int, SchemaSource], ...]
    """Versions to compare with, newest first."""
    known: frozenset[str]
    """Guids that need no comparison: they are versions of the subject."""
    other_extras: tuple[Any, Any] | None = None
    """Metadata and rules to register it with, if they differ from the request's."""
    context: str = DEFAULT_CONTEXT


class CompatibilityVerdict(NamedTuple):
    """Result of parsing a schema and comparing it with the plan's versions."""

    text: str
    guid: str
    record_name: str | None
    messages: tuple[str, ...] = ()
    """Incompatibilities with earlier versions; empty: compatible."""
    other_guid: str | None = None
    """Guid with the plan's other extras."""


def judge(plan: CheckPlan) -> CompatibilityVerdict:
    """Executes a plan; raises Rejected if the schema is invalid."""
    parsed = parse(plan.source)
    text, canonical = parsed.text, parsed.canonical
    if plan.normalizes:
        text = canonical = parsed.normalized()
    kind = plan.source.type
    # References that mean the same in two contexts give the same guid.
    references = tuple(
        Reference(one.name, short_for(plan.context, one.subject), one.version)
        for one in plan.source.references
    )
    guid = _guid(kind, canonical, references, plan.extras)
    other_guid = None
    if plan.other_extras is not None:
        other_guid = _guid(kind, canonical, references, plan.other_extras)
    messages: tuple[str, ...] = ()
    if guid not in plan.known:
        messages = tuple(_incompatible(parsed, plan))
    return CompatibilityVerdict(text, guid, parsed.record_name, messages, other_guid)


def format_text(source: SchemaSource, form: str) -> str:
    return parse(source).formatted(form)


def _incompatible(parsed: Parsed, plan: CheckPlan) -> list[str]:
    """Reasons of the first incompatible version."""
    for version, source in plan.previous:
        before = parse(source)
        found: list[str] = []
        if plan.level.is_backward:
            found += unreadable(reader=parsed, writer=before)
        if plan.level.is_forward:
            found += unreadable(reader=before, writer=parsed)
        if found:
            return [*found, f"version {version}: {plan.level}"]
    return []


def _guid(kind: str, canonical: str, references: tuple[Reference, ...], extras: Any) -> str:
    """Id derived from the content: equal schemas have equal guids."""
    digest = hashlib.md5(usedforsecurity=False)
    for part in (kind, canonical, write_sorted_json([list(one) for one in references])):
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    if any(extras):
        digest.update(write_sorted_json(extras).encode())
    return str(uuid.UUID(bytes=digest.digest()))
