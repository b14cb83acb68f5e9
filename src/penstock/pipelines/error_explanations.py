"""What Spark's errors mean for a stage, and what to do: one line instead of a page of Java.

Spark names its errors (`STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE`); where a name says that a restart
cannot help, the stage is not started again.
"""

import re
from typing import Final, NamedTuple

from penstock.pipelines.pipeline import Stage

_SHOWN: Final = 500
_PYTHON = re.compile(
    # Classes of Java have such names as well; what they say is Spark's, not the reason.
    r"^(?!org\.|java\.|py4j\.)(?:\w+\.)*"
    r"(\w*(?:Error|Exception|Refused|DataLoss|ForeignOffsets)): (.+)$",
    re.MULTILINE,
)

_STATE_CHANGED: Final = (
    "its new version keeps other state than the checkpoint holds. Either bring the old version "
    "back, or set version={next} on the stage: it begins with empty state where the old one "
    "stopped, and no record is lost or read twice. To fill the state again as well, set "
    "begin to how far back it should read, for instance begin='2h'; what it then writes again is "
    "right where keys are compacted, and double elsewhere"
)


class ErrorExplanation(NamedTuple):
    text: str
    can_restart: bool


_KNOWN: Final[tuple[tuple[str, str], ...]] = (
    ("STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", _STATE_CHANGED),
    ("STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", _STATE_CHANGED),
    ("STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION", _STATE_CHANGED),
    ("STATE_STORE_INVALID_KEY_SCHEMA_EVOLUTION", _STATE_CHANGED),
    ("STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA", _STATE_CHANGED),
    ("Please check number and type of stateful operators", _STATE_CHANGED),
    ("StateSchemaNotCompatible", _STATE_CHANGED),
    (
        "CANNOT_READ_DELTA_FILE_NOT_EXISTS",
        "the state of an earlier batch is not in its checkpoint: files were deleted, or a step "
        "behind the one that keeps state read nothing, as an inner join with an empty table does "
        "(use lookup). Set version={next}: it begins with empty state where this one stopped",
    ),
    (
        "ForeignOffsets",
        "its checkpoint is of another topic. Set version={next} to begin anew where the group "
        "{group!r} stands, or read the old topic again",
    ),
    (
        "CONCURRENT_STREAM_LOG_UPDATE",
        "somebody else runs it with the same checkpoint. Stop one of them",
    ),
    (
        "DataLoss",
        "records are gone that it should have read. Set options={{'failOnDataLoss': 'false'}} on "
        "the stage to go on without them",
    ),
)


def explain(stage: Stage, error: str) -> ErrorExplanation:
    """The line for people, and whether starting the stage again can help."""
    for mark, advice in _KNOWN:
        if mark in error:
            told = advice.format(next=stage.version + 1, group=stage.group)
            return ErrorExplanation(
                f"stage {stage.name!r}: {told} ({mark}: {reason_of(error)})", False
            )
    return ErrorExplanation(reason_of(error), True)


def reason_of(error: str) -> str:
    """What the Python at the bottom of it said, or else the first line."""
    raised = _PYTHON.findall(error)
    if raised:
        name, text = raised[-1]
        return f"{name}: {text}"[:_SHOWN]
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return (lines[0] if lines else "no reason given")[:_SHOWN]
