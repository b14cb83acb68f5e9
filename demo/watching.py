"""What there is to see by now, asked of the broker's HTTP door as anybody could."""

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from demo.shop import EMAILS, ORDERS


@dataclass(frozen=True)
class Sight:
    orders: int = 0
    lag: int = 0
    """Of both groups."""
    delayed: int = 0
    dead: int = 0
    schemas: int = 0

    @property
    def has_everything(self) -> bool:
        return min(self.orders, self.lag, self.delayed, self.dead, self.schemas) > 0

    def __str__(self) -> str:
        return (
            f"{self.orders:,} orders, {self.lag:,} behind, {self.delayed:,} emails waiting, "
            f"{self.dead:,} dead letters"
        )


def look(http: str) -> Sight:
    """Blocks for some milliseconds."""
    topic = _get(http, f"/topics/{ORDERS}")
    queue = _get(http, f"/topics/{EMAILS}/queues/mailers")
    return Sight(
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
        with urllib.request.urlopen(http + path, timeout=10) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError:
        return {}  # Nobody has begun there yet.
