"""Cycles of a measurement: messages published with confirmation, received and acknowledged.

Each side publishes `MESSAGES` of `SIZE` bytes with at most `UNCONFIRMED` unconfirmed while so many
consumers receive and acknowledge them; the rate is measured from the first publish to the last
acknowledgement. Latency is measured separately, at `PACE` messages per second, until receipt.
"""

from dataclasses import dataclass

MESSAGES = 50_000
SIZE = 100
UNCONFIRMED = 1_000
PACE = 1_000
LATENCY_SECONDS = 8
CONSUMERS = (1, 10, 100)


@dataclass(frozen=True)
class Cycles:
    """Results of a measurement."""

    rate: float
    """Complete cycles per second."""
    p99_ms: float | None = None


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
