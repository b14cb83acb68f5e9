"""Follows a streaming query to its end and reports the observed metrics of every batch."""

import time
from collections.abc import Callable
from typing import Any, Final

POLL_S: Final = 0.2


def follow(query: Any, metric: str, take: Callable[[dict[str, int]], None]) -> None:
    """Calls `take` once per batch. Raises the exception that ended the query, if any."""
    seen: set[int] = set()

    def look() -> None:
        for event in query.recentProgress:
            observed = (event["observedMetrics"] or {}).get(metric)
            if observed is None or event["batchId"] in seen:
                continue
            values = observed if isinstance(observed, dict) else observed.asDict()
            numbers = {name: int(value or 0) for name, value in values.items()}
            if any(numbers.values()):
                seen.add(event["batchId"])
                take(numbers)

    try:
        while query.isActive:
            look()
            time.sleep(POLL_S)
        look()
    finally:
        query.stop()
    query.awaitTermination()
