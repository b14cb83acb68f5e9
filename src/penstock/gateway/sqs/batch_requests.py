"""Limits and responses of batch requests."""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.base.errors import Refused
from penstock.gateway.sqs.call import Answer
from penstock.gateway.sqs.errors import Fault, fault_of

ENTRIES_MAX = 10
BATCH_BYTES_MAX = 1_048_576

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class BatchItem(Protocol):
    @property
    def id(self) -> str: ...


def check_entries(entries: Sequence[BatchItem], kind: str, *, size: int = 0) -> None:
    """Refuses an invalid batch as a whole; `size`: total bytes of its messages, if any."""
    if not entries:
        raise Fault("EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    if len(entries) > ENTRIES_MAX:
        raise Fault(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent "
            f"{len(entries)}.",
        )
    seen: set[str] = set()
    for entry in entries:
        if not _ID.fullmatch(entry.id):
            raise Fault(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long.",
            )
        if entry.id in seen:
            raise Fault("BatchEntryIdsNotDistinct", f"Id {entry.id} repeated.")
        seen.add(entry.id)
    if size > BATCH_BYTES_MAX:
        raise Fault(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. You have sent {size} "
            "bytes.",
        )


def batch_answer(
    entries: Sequence[BatchItem], results: Sequence[Mapping[str, object] | Fault]
) -> Answer:
    """Returns one row for each entry: its result, or its error."""
    done: list[object] = []
    failed: list[object] = []
    for entry, result in zip(entries, results, strict=True):
        if isinstance(result, Fault):
            failed.append(
                {
                    "Id": entry.id,
                    "SenderFault": result.is_sender,
                    "Code": result.old_code,
                    "Message": result.message,
                }
            )
        else:
            done.append({"Id": entry.id, **result})
    answer: Answer = {"Successful": done}
    return answer | ({"Failed": failed} if failed else {})


def as_fault(error: Fault | Refused) -> Fault:
    return error if isinstance(error, Fault) else fault_of(error)
