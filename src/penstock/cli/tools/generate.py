"""`penstock generate`: files for the tools that watch a cluster.

Asks nobody: what is printed is made by `penstock.observability`.
"""

import json
import re
from pathlib import Path

import click

from penstock.cli.terminal.errors import UserError
from penstock.observability.alerts import Thresholds, rules
from penstock.observability.dashboards import DASHBOARDS
from penstock.observability.panels import document
from penstock.observability.scrape_settings import settings

TARGET = re.compile(r"[A-Za-z0-9._-]+:[0-9]{1,5}|\[[0-9A-Fa-f:]+\]:[0-9]{1,5}")
DEFAULTS = Thresholds()

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
    type=click.Choice(list(DASHBOARDS)),
    help="One dashboard; all if left out.",
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

    Import them in Grafana under Dashboards, New, Import, or put them where a file provider of
    Grafana's looks. The data source is chosen in Grafana.

    \b
    penstock generate grafana overview > overview.json
    penstock generate grafana -o dashboards
    """
    if output is None:
        if name is None:
            raise UserError(
                f"name one of {', '.join(DASHBOARDS)}, or a directory for all of them with -o"
            )
        print(_text(name), end="")
        return
    directory = Path(output)
    directory.mkdir(parents=True, exist_ok=True)
    for one in [name] if name is not None else list(DASHBOARDS):
        path = directory / f"penstock-{one}.json"
        path.write_text(_text(one), encoding="utf-8")
        print(path)


def _text(name: str) -> str:
    return json.dumps(document(DASHBOARDS[name]), indent=2) + "\n"


@generate.command("alerts")
@click.option(
    "--lag-records",
    type=click.IntRange(1),
    default=DEFAULTS.lag_records,
    show_default=True,
    help="How far one partition of a group may be behind, for 5 minutes.",
)
@click.option(
    "--lag-seconds",
    type=click.IntRange(1),
    default=DEFAULTS.lag_seconds,
    show_default=True,
    help="How old an unread record may be, for 5 minutes.",
)
@click.option(
    "--disk-percent",
    type=click.IntRange(1, 99),
    default=DEFAULTS.disk_percent,
    show_default=True,
    help="How much of the disk must be free.",
)
@click.option(
    "--skew",
    type=click.FloatRange(1, min_open=True),
    default=DEFAULTS.skew,
    show_default=True,
    help="How many times its share the busiest partition may get.",
)
@output_option
def alerts(
    lag_records: int, lag_seconds: int, disk_percent: int, skew: float, output: str | None
) -> None:
    """Print alert rules for Prometheus; each says what to do first.

    \b
    penstock generate alerts -o penstock-alerts.yml
    penstock generate alerts --lag-records 500
    """
    limits = Thresholds(lag_records, lag_seconds, disk_percent, skew)
    _put(rules(limits), output)


@generate.command("prometheus")
@click.option(
    "-t",
    "--target",
    "targets",
    multiple=True,
    default=("127.0.0.1:8080",),
    show_default=True,
    metavar="HOST:PORT",
    help="The HTTP port of a node; repeatable.",
)
@click.option(
    "--interval",
    type=click.IntRange(1, 3600),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="How often to scrape.",
)
@click.option(
    "--rules",
    "rules_file",
    default="penstock-alerts.yml",
    show_default=True,
    metavar="FILE",
    help="Where the alert rules are, for Prometheus.",
)
@click.option("--tls", is_flag=True, help="The HTTP ports speak TLS.")
@output_option
def prometheus(
    targets: tuple[str, ...], interval: int, rules_file: str, tls: bool, output: str | None
) -> None:
    """Print settings with which Prometheus scrapes these nodes.

    \b
    penstock generate prometheus -t node-1:8080 -t node-2:8080 -o prometheus.yml
    """
    for target in targets:
        if TARGET.fullmatch(target) is None:
            raise UserError(f"--target {target!r} is not HOST:PORT, such as node-1:8080")
    _put(settings(targets, rules_file, interval, has_tls=tls), output)


def _put(text: str, output: str | None) -> None:
    if output is None:
        print(text, end="")
        return
    Path(output).write_text(text, encoding="utf-8")
    print(output)
