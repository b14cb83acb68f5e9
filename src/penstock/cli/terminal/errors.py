"""Explains failures in one line: what failed, why, and what to do next.

Penstock's own exceptions and those of the operating system are failures that the user can act on.
Any other exception is a bug in Penstock and keeps its traceback.
"""

import errno

# Advice by Kafka's error code, for messages that do not contain it.
_NEXT = {
    "UNKNOWN_TOPIC_OR_PARTITION": "see `penstock topic list`",
    "TOPIC_ALREADY_EXISTS": "choose another name, or use --if-not-exists",
    "INVALID_REPLICATION_FACTOR": "each replica needs its own node: add nodes, or lower it",
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

_EXTRAS = {
    "pyspark": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
    "fastavro": "spark",
    "jsonschema_rs": "spark",
    "grpc": "connect",
    "matplotlib": "pipelines",
    "prometheus_client": "pipelines",
    "sqlalchemy": "outbox",
    "psycopg": "postgres",
    "redis": "redis",
    "google": "registry",
    "joserfc": "security",
    "cryptography": "security",
    "opentelemetry": "otel",
    "mcp": "mcp",
    "mcp_types": "mcp",
}
"""Extra of the distribution that installs an optional package."""


class UserError(Exception):
    """The command cannot do what was asked; the message says how to correct it."""


class PipeClosed(Exception):
    """The reader closed the output pipe. The command ends with success."""


def explain(error: BaseException) -> str | None:
    """Returns the error line, or None for a bug in Penstock."""
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
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package in _EXTRAS:
            return (
                f"this needs the package {package}, which is not installed: "
                f"pip install 'penstock-mq[{_EXTRAS[package]}]'"
            )
    return None


def _explain_os_error(error: OSError, text: str) -> str:
    if error.errno == errno.EADDRINUSE:
        where = f": {text}" if "address" in text else ""
        return (
            f"the port is in use by another process{where}; stop it, or choose other ports "
            "with --kafka-port and --http-port (0 picks a free one)"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return "--host is not an address of this machine; choose one of its own, such as 127.0.0.1"
    if error.errno in (errno.EACCES, errno.EPERM):
        where = error.filename or "this operation"
        return f"permission denied for {where}; check its owner, or choose another path"
    if error.errno == errno.ENOSPC:
        return f"the disk is full ({error.filename or 'data directory'}); free some space"
    if error.filename and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}"
    return text or type(error).__name__
