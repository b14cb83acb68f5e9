"""`penstock doctor`: checks this machine and the cluster, and advises on findings."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.cluster import machine_checks
from penstock.cli.cluster.cluster_checks import check_cluster, unreachable
from penstock.cli.cluster.machine_checks import Check, CheckVerdict
from penstock.cli.terminal.errors import UserError, explain
from penstock.cli.terminal.output import OutputFormat, console, format_option, print_data
from penstock.cli.terminal.session import brokers_option, run

COLOURS = {"ok": "green", "skipped": "dim", "warn": "yellow", "fail": "red"}
ASK_SECONDS = 5.0

http_option = click.option(
    "--http",
    "urls",
    multiple=True,
    metavar="URL",
    help="The HTTP address of a node, such as http://127.0.0.1:8080; repeatable.",
)
config_option = click.option(
    "--config", metavar="FILE", help="The node's config file, to check as well."
)


@click.command("doctor", short_help="Check the machine and the cluster; advise on problems.")
@click.option(
    "--data",
    default="./penstock-data",
    show_default=True,
    metavar="DIR",
    help="The node's data directory, for the disk checks.",
)
@config_option
@http_option
@brokers_option
@format_option
def doctor(
    data: str, config: str | None, urls: tuple[str, ...], brokers: str, format: OutputFormat
) -> int:
    """Check disk, limits, clock, config and cluster; advise on problems.

    Run it on a node's machine, as the node's user. The exit code is 1 if a check fails; warnings
    do not count.

    \b
    penstock doctor
    penstock doctor --data /var/lib/penstock --config node.toml -b node-1:9092
    """
    found = examine(data, config, urls, brokers)
    if format.is_data:
        print_data([check._asdict() for check in found], format)
    else:
        _show(found)
    return 1 if any(check.verdict is CheckVerdict.fail for check in found) else 0


def examine(data: str, config: str | None, urls: tuple[str, ...], brokers: str) -> list[Check]:
    """Runs all checks. A check that cannot run is a finding, too."""
    found = [
        *machine_checks.check_disk(Path(data).absolute()),
        machine_checks.check_files(),
        machine_checks.check_clock(),
        machine_checks.check_config(config),
    ]
    found += [_check_http(url) for url in urls]
    try:
        return [*found, *run(brokers, check_cluster)]
    except UserError:
        raise
    except Exception as error:
        text = explain(error)
        if text is None:
            raise
        return [*found, unreachable(text)]


def _check_http(url: str) -> Check:
    from penstock.runtime.http_request import ask_web

    name = f"http {url}"
    try:
        status, body = ask_web("GET", url.rstrip("/") + "/readyz", None, {}, ASK_SECONDS)
    except ValueError as error:
        raise UserError(f"--http {url!r}: {error}") from None
    except OSError as error:
        action = "check that the node runs and that its port is reachable from here"
        return Check(name, CheckVerdict.fail, f"does not answer: {error}", action)
    text = body[:200].decode(errors="replace").strip()
    if status != 200:
        return Check(name, CheckVerdict.fail, text or str(status), "see the node's log")
    return Check(name, CheckVerdict.ok, "ready")


def _show(found: list[Check]) -> None:
    out = console()
    width = max(len(check.name) for check in found)
    for check in found:
        out.print(f"{check.verdict:<8}", style=COLOURS[check.verdict], end="", markup=False)
        out.print(f"{check.name:<{width}}  {check.finding}", markup=False)
        if check.action and check.verdict is not CheckVerdict.ok:
            out.print(f"{'':{8 + width}}  -> {check.action}", markup=False)
