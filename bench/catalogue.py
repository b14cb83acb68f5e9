"""Catalogue of all benchmark figures: meaning, unit, direction and target.

The report, the chart and the documentation derive from this table. Relative targets compare with
the peer in the same run, because absolute figures depend on the machine and its other load.
"""

from dataclasses import dataclass
from typing import Literal

SIZES = (100, 1024)
PARTITIONS = (1, 6)
Rule = Literal["ratio_max", "ratio_min", "peer_plus", "at_most", ""]


@dataclass(frozen=True)
class Figure:
    """Figure of the catalogue; `rule` defines the meaning of `target`."""

    key: str
    title: str
    unit: str
    rule: Rule = ""
    target: float = 0.0

    def passes(self, own: float, peer: float | None) -> bool | None:
        """True if the target is met; None without a target or a peer to compare with."""
        if self.rule == "at_most":
            return own <= self.target
        if not self.rule or peer is None:
            return None
        if self.rule == "peer_plus":
            return own <= peer + self.target
        ratio = own / peer if peer else float("inf")
        return ratio <= self.target if self.rule == "ratio_max" else ratio >= self.target

    @property
    def wanted(self) -> str:
        """Text of the target."""
        if self.rule == "peer_plus":
            return f"≤ Kafka + {self.target:g} {self.unit}" if self.target else "≤ Kafka"
        shapes = {"at_most": f"≤ {self.target:g} {self.unit}"}
        shapes |= {"ratio_max": f"≤ {self.target:g} x", "ratio_min": f"≥ {self.target:g} x"}
        return shapes.get(self.rule, "")


def size_name(size: int) -> str:
    return "1 KiB" if size == 1024 else f"{size} B"


def _traffic() -> list[Figure]:
    rows = []
    for verb in ("produce", "consume"):
        for size in SIZES:
            for partitions in PARTITIONS:
                key = f"{verb}_{size}_{partitions}"
                plural = "partition" if partitions == 1 else "partitions"
                title = f"{verb} {size_name(size)}, {partitions} {plural}"
                rows.append(Figure(f"{key}_rate", title, "msg/s", "ratio_min", 1.0))
                rows.append(Figure(f"{key}_cpu", f"{title}: broker CPU", "s/GB", "ratio_max", 0.7))
    return rows


def _groups() -> list[Figure]:
    rows = []
    for key, title in (
        ("heartbeat", "heartbeats"),
        ("consumer_heartbeat", "heartbeats of KIP-848"),
        ("commit_1", "offset commits of 1 partition"),
        ("commit_10", "offset commits of 10 partitions"),
    ):
        rows.append(Figure(f"{key}_rate", title, "req/s"))
        rows.append(Figure(f"{key}_cpu", f"{title}: broker CPU", "us", "ratio_max", 1.0))
    return rows


def _txns() -> list[Figure]:
    rows = []
    for size in SIZES:
        key, title = f"txns_{size}", f"transactions of {size_name(size)}, commit every 100 ms"
        rows.append(Figure(f"{key}_rate", title, "msg/s", "ratio_min", 1.0))
        rows.append(Figure(f"{key}_cpu", f"{title}: broker CPU", "s/GB", "ratio_max", 0.7))
        rows.append(Figure(f"{key}_commits", f"{title}: commits", "1/s"))
        rows.append(Figure(f"{key}_commit_ms", f"{title}: mean commit", "ms"))
    return rows


def _tls() -> list[Figure]:
    rows = []
    for verb in ("produce", "consume"):
        title = f"{verb} 1 KiB over TLS, 6 partitions"
        rows.append(Figure(f"tls_{verb}_rate", title, "msg/s", "ratio_min", 1.0))
        rows.append(Figure(f"tls_{verb}_cpu", f"{title}: broker CPU", "s/GB"))
    return rows


def _encryption() -> list[Figure]:
    rows = []
    for verb in ("produce", "consume"):
        for kind in ("plain", "encrypted"):
            title = f"{verb} 1 KiB, 6 partitions, {kind} topic"
            rows.append(Figure(f"encryption_{verb}_{kind}_rate", title, "msg/s"))
            rows.append(Figure(f"encryption_{verb}_{kind}_cpu", f"{title}: broker CPU", "s/GB"))
        title = f"encryption at rest: {verb} rate lost"
        rows.append(Figure(f"encryption_{verb}_cost", title, "%", "at_most", 15))
    return rows


def _replicated() -> list[Figure]:
    rows = []
    for partitions in PARTITIONS:
        plural = "partition" if partitions == 1 else "partitions"
        key = f"replicated_{partitions}"
        title = f"three nodes, three replicas, 1 KiB, {partitions} {plural}"
        rows.append(Figure(f"{key}_rate", title, "msg/s", "ratio_min", 1.0))
        rows.append(Figure(f"{key}_cpu", f"{title}: CPU of all", "s/GB", "ratio_max", 1.0))
    return rows


FIGURES = [
    *_traffic(),
    Figure("requests_rate", "single-record produce requests, one connection", "req/s"),
    Figure("requests_cpu", "broker CPU per single-record request", "us", "at_most", 40),
    *_groups(),
    *_txns(),
    *_replicated(),
    *_tls(),
    *_encryption(),
    Figure("latency_p50", "end to end at 1,000 msg/s, p50", "ms"),
    Figure("latency_p99", "end to end at 1,000 msg/s, p99", "ms", "peer_plus", 2.0),
    Figure("latency_p999", "end to end at 1,000 msg/s, p99.9", "ms"),
    Figure("latency_page_cache_p50", "the same with flush.policy=page-cache, p50", "ms"),
    Figure(
        "latency_page_cache_p99", "the same with flush.policy=page-cache, p99", "ms", "peer_plus"
    ),
    Figure("latency_page_cache_p999", "the same with flush.policy=page-cache, p99.9", "ms"),
    Figure("rss_idle", "resident memory, idle", "MiB"),
    Figure("rss_loaded", "resident memory, 100 partitions under load", "MiB", "at_most", 120),
    Figure("start", "start, exec to first metadata answer", "s", "at_most", 1.0),
    Figure("start_cpu", "CPU spent on starting", "s"),
    Figure("start_1000", "start with 1,000 partitions after a clean stop", "s", "at_most", 3.0),
    Figure("files_1000", "open files with 1,000 partitions", ""),
    Figure("threads_1000", "threads with 1,000 partitions", ""),
]
