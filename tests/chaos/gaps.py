"""Duration of write outages: one row for each kind of failure, beside Kafka's.

Kafka's figures are of three brokers with default settings on the same kind of machine, three runs
each: the longest time between two acknowledgements of a producer of 500 records a second.
"""

import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

HEAD = f"{'write gap, s':<34} rounds   median      p99  longest  promised   Kafka"


@dataclass
class Gaps:
    """One row of the table."""

    what: str
    promised_s: float
    kafka: str = "-"
    seconds: list[float] = field(default_factory=list)

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p99_s(self) -> float:
        return sorted(self.seconds)[round(0.99 * (len(self.seconds) - 1))]

    def __str__(self) -> str:
        return (
            f"{self.what:<34} {len(self.seconds):>6} {self.median_s:>8.2f} {self.p99_s:>8.2f} "
            f"{max(self.seconds):>8.2f} {self.promised_s:>9.1f}   {self.kafka}"
        )


def show(rows: Iterable[Gaps]) -> None:
    print("", HEAD, *(row for row in rows if row.seconds), sep="\n")
    print(f"(load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
