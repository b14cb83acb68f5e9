"""States of a classic group, by Kafka's names, and the names of its timers."""

from typing import Final

EMPTY: Final = "Empty"
PREPARING: Final = "PreparingRebalance"
COMPLETING: Final = "CompletingRebalance"
STABLE: Final = "Stable"
DEAD: Final = "Dead"

JOIN_TIMER: Final = ("join", "")
SYNC_TIMER: Final = ("sync", "")


def session_timer(member_id: str) -> tuple[str, str]:
    return ("session", member_id)
