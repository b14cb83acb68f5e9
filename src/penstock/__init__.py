"""Penstock: a distributed message queue in Python that any Kafka client can use.

    from penstock import Client, Message, SyncClient, Worker

What applications use is imported when it is first asked for: the broker needs none of it.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "BufferFull": "penstock.app.publish",
    "Busy": "penstock.app.dedup",
    "Client": "penstock.app.client",
    "Inbox": "penstock.app.outbox.inbox",
    "InvalidPayload": "penstock.app.payloads",
    "LogMessage": "penstock.app.message",
    "LogReader": "penstock.app.log_reader",
    "MemoryDedup": "penstock.app.dedup",
    "Message": "penstock.app.message",
    "Outbox": "penstock.app.outbox.enqueue",
    "Outgoing": "penstock.app.outgoing",
    "PostgresDedup": "penstock.app.dedup_stores",
    "Published": "penstock.app.publish",
    "QueueReader": "penstock.app.queue_reader",
    "RateLimited": "penstock.app.limiter",
    "RateLimiter": "penstock.app.limiter",
    "RedisDedup": "penstock.app.dedup_stores",
    "Refused": "penstock.base.errors",
    "Registry": "penstock.app.schemas",
    "Reject": "penstock.app.task",
    "Relay": "penstock.app.outbox.relay",
    "Retry": "penstock.app.task",
    "RetryBackoff": "penstock.app.task",
    "RetryTopics": "penstock.app.retry_topics",
    "Salting": "penstock.app.salting",
    "SqliteDedup": "penstock.app.dedup_stores",
    "SyncClient": "penstock.app.sync",
    "SyncMessage": "penstock.app.sync",
    "SyncRateLimiter": "penstock.app.limiter",
    "Task": "penstock.app.task",
    "TaskFailed": "penstock.app.replies",
    "Unreachable": "penstock.client.errors",
    "Worker": "penstock.app.worker",
    "idempotent": "penstock.app.dedup",
    "message_id_of": "penstock.app.dedup",
    "relaying": "penstock.app.outbox.relay",
    "spread_hot_keys": "penstock.app.salting",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
