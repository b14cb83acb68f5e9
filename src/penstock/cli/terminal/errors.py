"""Turns failures into one line for the person at the terminal: what, why, what to do next.

An exception class of ours, or one of the operating system's, is a failure the user can act on. Any
other is our bug and keeps its traceback: hiding it would help nobody.
"""

import errno

# What to do next, by Kafka's error code, where the message itself does not say.
_NEXT = {
    "UNKNOWN_TOPIC_OR_PARTITION": "see `penstock topic list`",
    "TOPIC_ALREADY_EXISTS": "choose another name, or use --if-not-exists",
    "INVALID_REPLICATION_FACTOR": "each copy needs a node of its own: add nodes, or take fewer",
    "INVALID_PARTITIONS": "the number of partitions can only grow",
    "MESSAGE_TOO_LARGE": "raise it with `penstock topic alter TOPIC -c max.message.bytes=...`",
    "OFFSET_OUT_OF_RANGE": "try -o start or -o end",
    "NOT_ENOUGH_REPLICAS": "wait for brokers to come back, or lower min.insync.replicas",
    "TOPIC_AUTHORIZATION_FAILED": "ask the cluster's administrator for access",
    "REQUEST_TIMED_OUT": "try again",
    "GROUP_ID_NOT_FOUND": "see `penstock group list`",
    "NON_EMPTY_GROUP": "stop its members first",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop its members first",
    "GROUP_AUTHORIZATION_FAILED": "ask the cluster's administrator for access",
    "TRANSACTIONAL_ID_NOT_FOUND": "see `penstock txn list`",
}


class UserError(Exception):
    """Something in the command line cannot be done; the message says what would be right."""


class PipeClosed(Exception):
    """Whoever read our output has closed it; what was asked for is done."""


def explain(error: BaseException) -> str | None:
    """The one line, or None for what is not the user's business but our bug."""
    if isinstance(error, AssertionError):
        return None
    text = " ".join(str(error).split())
    code = getattr(error, "code", None)
    if code is not None and type(error).__name__ == "Refused":
        advice = _NEXT.get(code.name)
        return f"{text.rstrip('.')}; {advice}" if advice else text
    if type(error).__module__.startswith("penstock."):
        return text
    if isinstance(error, OSError):
        return _explain_os_error(error, text)
    return None


def _explain_os_error(error: OSError, text: str) -> str:
    if error.errno == errno.EADDRINUSE:
        where = f": {text}" if "address" in text else ""
        return (
            f"the port is in use by another process{where}; stop that one, or choose other "
            "ports with --kafka-port and --http-port (0 picks a free one)"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have the address given with --host"
    if error.errno in (errno.EACCES, errno.EPERM):
        where = error.filename or "it"
        return f"no permission for {where}; check the owner, or choose another place"
    if error.errno == errno.ENOSPC:
        return f"the disk is full ({error.filename or 'data directory'}); free some space"
    if error.filename and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}"
    return text or type(error).__name__
