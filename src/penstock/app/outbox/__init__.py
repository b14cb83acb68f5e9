"""Messages that commit with a database transaction, and handlers that commit with their message.

Needs the extra `outbox` (SQLAlchemy); for PostgreSQL also a driver (extra `postgres`).
"""

from penstock.app.outbox.enqueue import Outbox
from penstock.app.outbox.inbox import Inbox
from penstock.app.outbox.relay import Relay, RelayConfig, relaying

__all__ = ["Inbox", "Outbox", "Relay", "RelayConfig", "relaying"]
