"""The settings that make Prometheus scrape a cluster: its nodes' HTTP ports, and the rules."""

from collections.abc import Sequence

from penstock.observability.alerts import quoted

JOB = "penstock"
"""The alert on a node that is down looks for this name."""


def settings(
    targets: Sequence[str], rules_file: str, interval_s: int, *, has_tls: bool = False
) -> str:
    """The text of `prometheus.yml`."""
    lines = [
        "# Made by `penstock generate prometheus`.",
        "global:",
        f"  scrape_interval: {interval_s}s",
        f"  evaluation_interval: {interval_s}s",
        "rule_files:",
        f"  - {quoted(rules_file)}",
        "scrape_configs:",
        f"  - job_name: {JOB}",
        "    metrics_path: /metrics",
        f"    scheme: {'https' if has_tls else 'http'}",
        "    static_configs:",
        "      - targets:",
    ]
    lines += [f"          - {quoted(target)}" for target in targets]
    return "\n".join(lines) + "\n"
