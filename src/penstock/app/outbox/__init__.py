"""Transactional outbox and inbox: messages and effects that commit with a database transaction.

Needs the extra `outbox` (SQLAlchemy); for PostgreSQL also a driver (extra `postgres`).
"""

from penstock.app.outbox.enqueue import Outbox
from penstock.app.outbox.inbox import Inbox
from penstock.app.outbox.relay import Relay, RelayConfig, relaying

__all__ = ["Inbox", "Outbox", "Relay", "RelayConfig", "relaying"]
