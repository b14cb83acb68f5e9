"""`penstock up`: runs a node in this process, or a local cluster, until SIGTERM or Ctrl-C.

Prints one line on standard output when it serves, so that scripts can wait for it:
`penstock ready kafka=HOST:PORT,... http=URL,...`. On a terminal it prints the addresses to use, the
data directory and how to stop instead. `penstock.node` runs the node; `local_cluster` runs a
cluster's child processes.
"""

import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from penstock import __version__
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.logs import log_format_option, log_level_option, set_up

set_option = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="Broker config by Kafka's name, e.g. num.partitions=6; repeatable.",
)


@click.command("up", short_help="Start a broker on this machine, or a cluster.")
@click.option(
    "--nodes",
    type=int,
    default=1,
    metavar="N",
    help="Number of nodes; more than one starts etcd, too [1].",
)
@click.option("--data", metavar="DIR", help="Data directory [./penstock-data].")
@click.option(
    "--kafka-port",
    type=int,
    metavar="PORT",
    help="Port of Kafka's protocol; 0 picks a free one [9092].",
)
@click.option(
    "--http-port",
    type=int,
    metavar="PORT",
    help="Port of HTTP and metrics; 0 picks a free one [8080].",
)
@click.option("--host", help="Address to listen on and to advertise [127.0.0.1].")
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond this machine without authentication: every peer may do everything.",
)
@click.option("--node-id", type=int, metavar="N", help="This node's id in the cluster [1].")
@set_option
@click.option("--config", metavar="FILE", help="TOML file with the same settings; flags win.")
@log_format_option
@log_level_option("warning")
def up(
    nodes: int,
    data: str | None,
    kafka_port: int | None,
    http_port: int | None,
    host: str | None,
    insecure: bool,
    node_id: int | None,
    sets: tuple[str, ...],
    config: str | None,
    log_format: str,
    log_level: str,
) -> int:
    """Start a broker on this machine, or a cluster of them (--nodes 3).

    When it serves, prints its addresses on a terminal, and elsewhere the line
    `penstock ready kafka=HOST:PORT http=URL`. Stops cleanly on SIGTERM and Ctrl-C. Further nodes of
    a cluster take the next ports; their data and logs are below --data.

    \b
    penstock up
    penstock up --data /var/lib/penstock --set num.partitions=6
    penstock up --nodes 3
    """
    pairs = parse_pairs(sets, "--set")
    if nodes != 1:
        for given, option in ((node_id, "--node-id"), (config, "--config")):
            if given is not None:
                raise UserError(f"{option} is for a single node; leave it out with --nodes {nodes}")
        set_up(log_format, log_level)
        return _up_cluster(nodes, data, kafka_port, http_port, host, pairs, insecure)
    with quick_imports():
        from penstock.node.config import load
        from penstock.node.process import run
        from penstock.node.security.secret_exposure import check_config_file, command_line_secrets
        from penstock.runtime.file_permissions import readers_of

    flags = {
        "data_dir": data,
        "host": host,
        "kafka_port": kafka_port,
        "http_port": http_port,
        "node_id": node_id,
        "is_insecure": insecure or None,
    }
    loaded = load(config, flags, pairs)
    set_up(log_format, log_level, node=loaded.node_id)
    warnings = command_line_secrets(pairs)
    if config is not None:
        names = [name for name in loaded.overrides if name not in pairs]
        if loaded.etcd is not None and loaded.etcd.password:
            names.append("etcd.password")
        warnings += check_config_file(config, names, readers_of)
    _warn(warnings)
    run(loaded, ready_notice(loaded.data_dir))
    return 0


def _up_cluster(
    nodes: int,
    data: str | None,
    kafka_port: int | None,
    http_port: int | None,
    host: str | None,
    sets: dict[str, str],
    insecure: bool,
) -> int:
    import asyncio

    from penstock.cli.server.local_cluster import ClusterPlan, LocalCluster
    from penstock.node.config import ALIASES, load
    from penstock.node.process import refuse_open_access
    from penstock.node.security.secret_exposure import command_line_secrets

    flags = {"host": host, "kafka_port": kafka_port, "http_port": http_port}
    # Checked here, so that a mistake is reported once and not by every node.
    checked = load(None, {**flags, "is_insecure": insecure or None}, sets)
    for name in ALIASES:
        if name in sets:
            raise UserError(f"{name} is for a single node; leave it out with --nodes {nodes}")
    refuse_open_access(checked)
    _warn(command_line_secrets(sets))
    plan = ClusterPlan(
        Path(data or "./penstock-cluster"),
        nodes,
        checked.host,
        checked.kafka_port,
        checked.http_port,
        sets,
        is_insecure=insecure,
    )

    async def supervise() -> int:
        return await LocalCluster(plan, _say).run(ready_notice(str(plan.data_dir)))

    return asyncio.run(supervise())


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        logging.getLogger("penstock.node").warning("%s", warning)


def _say(text: str) -> None:
    print(f"penstock: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Disables garbage collection during imports, and freezes the imported objects after them."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def ready_notice(data_dir: str) -> Callable[[str, str], None]:
    """Returns a function that reports the addresses of a broker that serves."""

    def announce(kafka: str, http: str) -> None:
        if sys.stdout.isatty():
            print(_greeting(kafka, http, data_dir), flush=True)
        else:
            print(f"penstock ready kafka={kafka} http={http}", flush=True)

    return announce


def _greeting(kafka: str, http: str, data_dir: str) -> str:
    console, *further = http.split(",")
    shown = {
        "Kafka": kafka.replace(",", ", "),
        "Console": console + (f" (the same on each node: {', '.join(further)})" if further else ""),
        "Data": data_dir,
        "Stop": "Ctrl-C; the data stays",
    }
    lines = [f"  {name:<9}{text}" for name, text in shown.items()]
    return "\n".join([f"Penstock {__version__} is ready.", "", *lines, ""])


def parse_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parses `name=value` pairs of a repeatable option; the last one of a name wins."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UserError(f"{option} {text!r} is not a setting; write {option} name=value")
        pairs[name.strip()] = value.strip()
    return pairs
