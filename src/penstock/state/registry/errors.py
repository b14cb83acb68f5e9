"""Refusals of the registry, by the error codes of Confluent's REST API.

Inside the node a `Rejected` is a refusal like any other; the registry's endpoint returns its
`number` and message. The first three digits of a number are the HTTP status.
"""

from enum import IntEnum

from penstock.base.errors import ErrorCode, Refused


class RegistryErrorCode(IntEnum):
    """Error codes by which clients of the registry distinguish refusals."""

    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    SUBJECT_HAS_NO_LEVEL = 40408
    SUBJECT_HAS_NO_MODE = 40409
    INCOMPATIBLE_SCHEMA = 40901
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_LEVEL = 42203
    INVALID_MODE = 42204
    NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    ID_DOES_NOT_MATCH = 42207
    INVALID_SUBJECT = 42208
    SCHEMA_TOO_LARGE = 42209
    CONTEXT_NOT_EMPTY = 42211
    FORBIDDEN = 40301
    STORE = 50001
    TIMEOUT = 50002
    FORWARDING = 50003
    UNKNOWN_LEADER = 50004


class Rejected(Refused):
    """A refusal with the registry's own error code."""

    def __init__(self, number: RegistryErrorCode, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)
        self.number = number


def invalid(message: str) -> Rejected:
    """Refusal of a schema that is itself invalid."""
    return Rejected(RegistryErrorCode.INVALID_SCHEMA, f"Invalid schema: {message}")
