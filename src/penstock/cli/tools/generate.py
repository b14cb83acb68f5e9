"""`penstock generate`: dashboards, alert rules and scrape settings.

Prints the files of `penstock.observability`, which `deploy/` links to. Fills in alert thresholds
and node addresses; works without a cluster.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import click

from penstock.cli.terminal.errors import UserError

TARGET = re.compile(r"[A-Za-z0-9._-]+:[0-9]{1,5}|\[[0-9A-Fa-f:]+\]:[0-9]{1,5}")
DASHBOARDS = ("overview", "topics", "queues", "cluster")
LAG_RECORDS, LAG_SECONDS, DISK_PERCENT, SKEW = 10_000, 900, 15, 4.0
"""Default thresholds, as written in penstock-alerts.yml."""

output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write to this file instead of standard output.",
)


@click.group("generate", no_args_is_help=True)
def generate() -> None:
    """Print dashboards, alert rules and scrape settings."""


@generate.command("grafana")
@click.argument(
    "name",
    required=False,
    type=click.Choice(DASHBOARDS),
    help="The dashboard [all, with -o].",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    metavar="DIRECTORY",
    help="Write penstock-NAME.json files here instead of printing one.",
)
def grafana(name: str | None, output: str | None) -> None:
    """Print a Grafana dashboard, or write all of them to a directory.

    Import them in Grafana under Dashboards, New, Import, or put them into the directory of a file
    provider. Choose the data source in Grafana.

    \b
    penstock generate grafana overview > overview.json
    penstock generate grafana -o dashboards
    """
    if output is None:
        if name is None:
            raise UserError(f"pass one of {', '.join(DASHBOARDS)}, or -o DIRECTORY for all of them")
        print(_dashboard(name), end="")
        return
    directory = Path(output)
    directory.mkdir(parents=True, exist_ok=True)
    for one in [name] if name is not None else DASHBOARDS:
        path = directory / f"penstock-{one}.json"
        path.write_text(_dashboard(one), encoding="utf-8")
        print(path)


def _dashboard(name: str) -> str:
    return _packaged(f"grafana/penstock-{name}.json")


def _packaged(path: str) -> str:
    from importlib.resources import files

    return (files("penstock.observability") / path).read_text(encoding="utf-8")


@generate.command("alerts")
@click.option(
    "--lag-records",
    type=click.IntRange(1),
    default=LAG_RECORDS,
    show_default=True,
    help="Alert above this lag of a partition, after 5 minutes.",
)
@click.option(
    "--lag-seconds",
    type=click.IntRange(1),
    default=LAG_SECONDS,
    show_default=True,
    help="Alert above this age of an unread record, after 5 minutes.",
)
@click.option(
    "--disk-percent",
    type=click.IntRange(1, 99),
    default=DISK_PERCENT,
    show_default=True,
    help="Alert below this free share of the disk.",
)
@click.option(
    "--skew",
    type=click.FloatRange(1, min_open=True),
    default=SKEW,
    show_default=True,
    help="Alert above this multiple of a partition's fair share.",
)
@output_option
def alerts(
    lag_records: int, lag_seconds: int, disk_percent: int, skew: float, output: str | None
) -> None:
    """Print alert rules for Prometheus; each advises on the first step.

    \b
    penstock generate alerts -o penstock-alerts.yml
    penstock generate alerts --lag-records 500
    """
    limits = {
        f"{LAG_RECORDS}": f"{lag_records}",
        f"{LAG_SECONDS}": f"{lag_seconds}",
        f"{DISK_PERCENT}": f"{disk_percent}",
        f"{SKEW:g}": f"{skew:g}",
    }
    _put(with_limits(_packaged("prometheus/penstock-alerts.yml"), limits), output)


def with_limits(rules: str, limits: Mapping[str, str]) -> str:
    """Replaces these numbers in the rules' comparisons."""
    known = "|".join(map(re.escape, limits))
    return re.sub(rf"(?<=[<>] )(?:{known})(?![\w.])", lambda found: limits[found[0]], rules)


@generate.command("prometheus")
@click.option(
    "-t",
    "--target",
    "targets",
    multiple=True,
    default=("127.0.0.1:8080",),
    show_default=True,
    metavar="HOST:PORT",
    help="HTTP address of a node; repeatable.",
)
@click.option(
    "--interval",
    type=click.IntRange(1, 3600),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="Scrape interval.",
)
@click.option(
    "--rules",
    "rules_file",
    default="penstock-alerts.yml",
    show_default=True,
    metavar="FILE",
    help="Path of the alert rules, for Prometheus.",
)
@click.option("--tls", is_flag=True, help="The HTTP ports use TLS.")
@output_option
def prometheus(
    targets: tuple[str, ...], interval: int, rules_file: str, tls: bool, output: str | None
) -> None:
    """Print a Prometheus configuration that scrapes these nodes.

    \b
    penstock generate prometheus -t node-1:8080 -t node-2:8080 -o prometheus.yml
    """
    for target in targets:
        if TARGET.fullmatch(target) is None:
            raise UserError(f"--target {target!r} is not HOST:PORT, such as node-1:8080")
    import yaml

    from penstock.cli.terminal.yaml import dumped

    settings = yaml.safe_load(_packaged("prometheus/prometheus.yml"))
    settings["global"] = dict.fromkeys(settings["global"], f"{interval}s")
    settings["rule_files"] = [rules_file]
    (job,) = settings["scrape_configs"]
    job["scheme"] = "https" if tls else "http"
    job["static_configs"] = [{"targets": list(targets)}]
    _put("# Made by `penstock generate prometheus`.\n" + dumped(settings), output)


def _put(text: str, output: str | None) -> None:
    if output is None:
        print(text, end="")
        return
    Path(output).write_text(text, encoding="utf-8")
    print(output)
