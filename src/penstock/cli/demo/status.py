"""Status of the demo, read from the broker's HTTP endpoint."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from penstock.cli.demo.shop import EMAILS, ORDERS


@dataclass(frozen=True)
class DemoStatus:
    orders: int = 0
    lag: int = 0
    """Lag of both groups."""
    delayed: int = 0
    dead: int = 0
    schemas: int = 0

    @property
    def has_everything(self) -> bool:
        return min(self.orders, self.lag, self.delayed, self.dead, self.schemas) > 0

    def __str__(self) -> str:
        return (
            f"{self.orders:,} orders, {self.lag:,} behind, {self.delayed:,} delayed, "
            f"{self.dead:,} dead letters"
        )


def read_status(http: str) -> DemoStatus:
    """Reads the status; blocks for some milliseconds."""
    topic = _get(http, f"/topics/{ORDERS}")
    queue = _get(http, f"/topics/{EMAILS}/queues/mailers")
    return DemoStatus(
        orders=sum(
            (row["end_offset"] or 0) - (row["start_offset"] or 0) for row in topic["partitions"]
        ),
        lag=sum(_lag(http, group) for group in ("billing", "analytics")),
        delayed=queue.get("delayed", 0),
        dead=sum(box["letters"] for box in _get(http, "/dlq").get("topics", [])),
        schemas=len(_get(http, "/subjects")),
    )


def _lag(http: str, group: str) -> int:
    found = _get(http, f"/groups/{group}/scaling")
    lag: int = found.get("lag", 0)
    return lag


def _get(http: str, path: str) -> Any:
    try:
        with urllib.request.urlopen(http + path, timeout=10) as answer:  # noqa: S310
            return json.loads(answer.read())
    except urllib.error.HTTPError:
        return {}  # No consumer has started yet.
