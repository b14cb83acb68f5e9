"""Errors of a client and their classification as retriable or permanent.

The kinds are those of `penstock.base.errors`. A request that the broker refuses raises `Refused`
with Kafka's code. A broker that breaks the protocol raises `PeerError`. A network failure raises an
OSError, one of the classes below. Messages are for users of the command line: what happened, why,
and what to do next.
"""

import errno

from penstock.base.errors import ErrorCode, Refused


class Unreachable(ConnectionError):
    """Connecting to a broker failed; no request was sent."""


class Untrusted(Unreachable):
    """The broker's certificate was rejected; a retry does not help."""


class ConnectionLost(ConnectionError):
    """The connection ended before the reply: the outcome of the request is unknown."""


class RequestTimeout(TimeoutError):
    """No reply within the request timeout: the outcome of the request is unknown."""


class DeliveryTimeout(TimeoutError):
    """A record was not delivered within the producer's delivery timeout."""


# The metadata is stale: refresh it, then retry.
STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

# Temporary: the same request may succeed a moment later.
RETRIABLE = STALE_METADATA | frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    }
)


def code_of(number: int) -> ErrorCode:
    """Converts a broker's error code; an unknown number becomes UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(number: int, message: str | None = None, *, about: str = "") -> Refused:
    """Builds a Refused with a text for the broker's error code; `about` names its subject."""
    code = code_of(number)
    text = (message or _MEANING.get(code) or code.name).rstrip(".")
    if code is ErrorCode.UNKNOWN_SERVER_ERROR and number != -1:
        text = f"{text} (error code {number})"
    # Messages of brokers often name the subject already.
    is_named = not about or about.rsplit(" ", 1)[-1] in text
    return Refused(code, text if is_named else f"{about}: {text}")


def check(number: int, message: str | None = None, *, about: str = "") -> None:
    """Raises Refused unless the code is NONE."""
    if number != 0:
        raise refusal(number, message, about=about)


_MEANING = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed in a way it does not explain; see its log",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is not in the log",
    ErrorCode.CORRUPT_MESSAGE: "the broker refused the batch as corrupt",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the broker does not lead this partition",
    ErrorCode.REQUEST_TIMED_OUT: "the broker could not finish in time",
    ErrorCode.MESSAGE_TOO_LARGE: "larger than the topic's max.message.bytes",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "not a valid topic name: use letters, digits, '.', '_', '-'",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than a segment of the topic",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer in-sync replicas than min.insync.replicas",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed for this user",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed for this user",
    ErrorCode.INVALID_TIMESTAMP: "the record's timestamp is too far from the broker's clock",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support this request",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it already exists",
    ErrorCode.INVALID_PARTITIONS: "not a valid number of partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "not a valid replication factor for this cluster",
    ErrorCode.INVALID_CONFIG: "not a valid configuration",
    ErrorCode.NOT_CONTROLLER: "the broker is not the controller",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "an earlier batch of this producer is missing",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the broker no longer knows this producer",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk failed",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not support this codec",
    ErrorCode.INVALID_RECORD: "the broker refused a record of the batch",
    ErrorCode.INVALID_GROUP_ID: "not a valid group name",
    ErrorCode.GROUP_ID_NOT_FOUND: "it does not exist",
    ErrorCode.NON_EMPTY_GROUP: "it has members",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group's members are subscribed to this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed for this user",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "it has no coordinator at the moment",
    ErrorCode.NOT_COORDINATOR: "another broker is its coordinator",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before it is still ending",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed for this user",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has fenced it",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer coordinator has taken over",
}


def reason(error: OSError) -> str:
    """Returns a short cause: the texts of asyncio repeat addresses and errno numbers."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if error.errno is not None and error.errno in _REASONS:
        return _REASONS[error.errno]
    # create_connection joins the causes of several addresses into one text.
    if "Multiple exceptions" in str(error) and "Errno 111" in str(error):
        return "connection refused"
    return (error.strerror or str(error) or type(error).__name__).strip()


_REASONS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network unreachable",
    errno.ETIMEDOUT: "no answer in time",
    -2: "host name not known",
    -3: "host name lookup failed for now",
    -5: "host name not known",
}
