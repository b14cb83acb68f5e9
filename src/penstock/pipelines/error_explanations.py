"""Explanations of Spark's errors: one line with the remedy instead of a Java stack trace.

Spark names its errors (`STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE`). For errors that a restart cannot
fix, the stage is not restarted.
"""

import re
from typing import Final, NamedTuple

from penstock.pipelines.pipeline import Stage

_SHOWN_CHARS_MAX: Final = 500
_PYTHON = re.compile(
    # Java exceptions have such names as well; their messages are Spark's, not the cause.
    r"^(?!org\.|java\.|py4j\.)(?:\w+\.)*"
    r"(\w*(?:Error|Exception|Refused|DataLoss|ForeignOffsets)): (.+)$",
    re.MULTILINE,
)

_STATE_CHANGED: Final = (
    "the state of the new version is incompatible with the checkpoint. Restore the old version, or "
    "set version={next} on the stage: it starts with empty state where the old one stopped, and no "
    "record is lost or read twice. To rebuild the state, also set begin to the time to read back, "
    "for example begin='2h'; then rows are written again, which is correct for compacted topics "
    "and creates duplicates elsewhere"
)


class ErrorExplanation(NamedTuple):
    text: str
    can_restart: bool


_KNOWN_ERRORS: Final[tuple[tuple[str, str], ...]] = (
    ("STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", _STATE_CHANGED),
    ("STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", _STATE_CHANGED),
    ("STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION", _STATE_CHANGED),
    ("STATE_STORE_INVALID_KEY_SCHEMA_EVOLUTION", _STATE_CHANGED),
    ("STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA", _STATE_CHANGED),
    ("Please check number and type of stateful operators", _STATE_CHANGED),
    ("StateSchemaNotCompatible", _STATE_CHANGED),
    (
        "CANNOT_READ_DELTA_FILE_NOT_EXISTS",
        "the checkpoint lacks the state of an earlier batch: files were deleted, or a step after "
        "the stateful one read no rows, as an inner join with an empty table does (use lookup). "
        "Set version={next}: it starts with empty state where this one stopped",
    ),
    (
        "ForeignOffsets",
        "the checkpoint belongs to another topic. Set version={next} to start at the committed "
        "offsets of group {group!r}, or read the old topic again",
    ),
    (
        "UndecidedOrder",
        "a key of a table has two values with the same timestamp in different partitions. Write "
        "the key again, or set Latest(..., ties='higher-partition')",
    ),
    (
        "ExpectationFailed",
        "a row fails an expectation with on_fail='fail'. Correct the rows or the expectation; "
        "on_fail='dlq' would set such rows aside",
    ),
    (
        "CONCURRENT_STREAM_LOG_UPDATE",
        "another process runs it with the same checkpoint. Stop one of them",
    ),
    (
        "DataLoss",
        "records were deleted before the stage has read them. Set "
        "options={{'failOnDataLoss': 'false'}} on the stage to continue without them",
    ),
)


def explain(stage: Stage, error: str) -> ErrorExplanation:
    """Explanation of an error, and True if a restart of the stage can help."""
    for mark, advice in _KNOWN_ERRORS:
        if mark in error:
            text = advice.format(next=stage.version + 1, group=stage.group)
            return ErrorExplanation(
                f"stage {stage.name!r}: {text} ({mark}: {reason_of(error)})", False
            )
    return ErrorExplanation(reason_of(error), True)


def reason_of(error: str) -> str:
    """Message of the last Python exception in the error, else its first line."""
    raised = _PYTHON.findall(error)
    if raised:
        name, text = raised[-1]
        return f"{name}: {text}"[:_SHOWN_CHARS_MAX]
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return (lines[0] if lines else "no reason given")[:_SHOWN_CHARS_MAX]
