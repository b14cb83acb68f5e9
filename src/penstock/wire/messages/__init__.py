"""Kafka protocol messages by API key: one class per request, one per response.

The classes live in the modules of this package, under Kafka's names with Kafka's fields in snake
case. A nested struct keeps Kafka's name where only one message has it; otherwise it is prefixed
with the name of its API or message. Versions are those of Kafka 4.3, without the records of magic 0
and 1 (Produce 0-2). Keys from `OWN_KEYS` on are Penstock's, for its nodes and tools.

A client imports only the modules that it uses; the two tables in `wire.apis` import all of them on
first access.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.wire.apis import REQUESTS as REQUESTS
    from penstock.wire.apis import RESPONSES as RESPONSES

OWN_KEYS: Final = 30_000


def __getattr__(name: str) -> Any:
    if name not in ("REQUESTS", "RESPONSES"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.wire import apis

    return getattr(apis, name)
