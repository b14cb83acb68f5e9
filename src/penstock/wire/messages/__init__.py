"""Every message we speak, by api key: one class for the request, one for the response.

The classes live in the family modules beside this file, under Kafka's names with Kafka's fields in
snake case. A nested struct keeps Kafka's name where only one message has it, and is prefixed with
its API's (or its message's) where several do. Versions are those of Kafka 4.3, the records of
magic 0 and 1 (Produce 0-2) left out. Keys from `OWN_KEYS` on are ours: nodes use them among
themselves.

A client loads the families that it speaks; the two tables, in `wire.apis`, load all of them when
somebody asks.
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
