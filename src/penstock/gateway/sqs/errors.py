"""Errors of SQS and SNS: Amazon's names and codes.

An error has a name (`QueueDoesNotExist`, which boto3 raises as a class of that name) and, for some,
a different code in the older query protocol. Both protocols carry that code, and programs compare
it. Refusals of the node are mapped to the corresponding error.
"""

import math

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.quota import Throttled

PREFIX = "AWS.SimpleQueueService."
OLD_CODES = {
    "QueueDoesNotExist": PREFIX + "NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
} | {
    name: PREFIX + name
    for name in (
        "BatchEntryIdsNotDistinct",
        "BatchRequestTooLong",
        "EmptyBatchRequest",
        "InvalidBatchEntryId",
        "MessageNotInflight",
        "PurgeQueueInProgress",
        "QueueDeletedRecently",
        "TooManyEntriesInBatchRequest",
        "UnsupportedOperation",
    )
}
UNMODELLED = {
    "InvalidParameterValue": "InvalidParameterValueException",
    "MissingParameter": "MissingRequiredParameterException",
}
"""Errors outside of SQS's own model, with their names in the JSON protocol."""
QUERY_MESSAGES = {
    "QueueDoesNotExist": "The specified queue does not exist for this wsdl version.",
}
"""Messages that differ in the query protocol."""
STATUSES = {
    "AccessDenied": 403,
    "IncompleteSignature": 403,
    "InternalError": 500,
    "InvalidClientTokenId": 403,
    "MissingAuthenticationToken": 403,
    "NotFound": 404,
    "ResourceNotFoundException": 404,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "ThrottlingException": 429,
}
SENDER_FAULT_BELOW = 500
SHOWN_CHARS_MAX = 500
"""Maximum length of a value in an error message."""


class Fault(Exception):
    """Error as Amazon defines it."""

    def __init__(self, name: str, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.message = message
        self.wait_s = wait_s
        """Time after which to retry, if known."""

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers of the error."""
        return {} if self.wait_s is None else {"retry-after": str(math.ceil(self.wait_s))}

    @property
    def status(self) -> int:
        return STATUSES.get(self.name, 400)

    @property
    def is_sender(self) -> bool:
        """True if the sender has to change the request."""
        return self.status < SENDER_FAULT_BELOW

    @property
    def old_code(self) -> str:
        """Code in the query protocol."""
        return OLD_CODES.get(self.name, self.name)


def invalid(name: str, value: object, reason: str) -> Fault:
    """Error for a parameter with an invalid value."""
    shown = str(value)
    shown = shown if len(shown) <= SHOWN_CHARS_MAX else shown[:SHOWN_CHARS_MAX] + "..."
    return Fault(
        "InvalidParameterValue", f"Value {shown} for parameter {name} is invalid. Reason: {reason}"
    )


def missing(name: str) -> Fault:
    return Fault("MissingParameter", f"The request must contain the parameter {name}.")


def no_queue() -> Fault:
    return Fault("QueueDoesNotExist", "The specified queue does not exist.")


_FAULTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "QueueDoesNotExist",
    ErrorCode.UNKNOWN_TOPIC_ID: "QueueDoesNotExist",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidParameterValue",
    ErrorCode.TOPIC_ALREADY_EXISTS: "QueueNameExists",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "AccessDenied",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "AccessDenied",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "AccessDenied",
    ErrorCode.INVALID_CONFIG: "InvalidAttributeValue",
    ErrorCode.INVALID_REQUEST: "InvalidParameterValue",
    ErrorCode.INVALID_RECORD: "InvalidParameterValue",
    ErrorCode.MESSAGE_TOO_LARGE: "InvalidParameterValue",
    ErrorCode.RECORD_LIST_TOO_LARGE: "InvalidParameterValue",
    ErrorCode.POLICY_VIOLATION: "OverLimit",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "ThrottlingException",
    ErrorCode.UNKNOWN_SERVER_ERROR: "InternalError",
    ErrorCode.KAFKA_STORAGE_ERROR: "InternalError",
    ErrorCode.CORRUPT_MESSAGE: "InternalError",
}


def fault_of(refused: Refused) -> Fault:
    """Maps a refusal that no handler mapped; unknown codes become a retryable error."""
    if refused.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return no_queue()
    name = _FAULTS.get(refused.code, "ServiceUnavailable")
    wait_s = refused.wait_s if isinstance(refused, Throttled) else None
    return Fault(name, refused.message or refused.code.name, wait_s)
