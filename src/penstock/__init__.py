"""Penstock: a distributed message queue in Python that any Kafka client can use.

    from penstock import Client, Message, SyncClient, Worker

What applications use is imported when it is first asked for: the broker needs none of it.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "BufferFull": "penstock.app.publish",
    "Client": "penstock.app.client",
    "InvalidPayload": "penstock.app.payloads",
    "LogMessage": "penstock.app.message",
    "Message": "penstock.app.message",
    "Outgoing": "penstock.app.outgoing",
    "Published": "penstock.app.publish",
    "Refused": "penstock.base.errors",
    "Registry": "penstock.app.schemas",
    "Reject": "penstock.app.task",
    "Retry": "penstock.app.task",
    "SyncClient": "penstock.app.sync",
    "Task": "penstock.app.task",
    "TaskFailed": "penstock.app.replies",
    "Unreachable": "penstock.client.errors",
    "Worker": "penstock.app.worker",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
