"""`penstock node`: runs one node of a cluster in this process, until SIGTERM or Ctrl-C.

Its config comes from a file; the cluster's metadata is in an etcd that runs elsewhere. Reports the
same as `penstock up` when it serves, and logs to standard error.
"""

import click

from penstock.cli.server.up import parse_pairs, quick_imports, ready_notice, set_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.logs import log_format_option, log_level_option, set_up


@click.command("node")
@click.option(
    "--config", required=True, metavar="FILE", help="The node's config as TOML; see below."
)
@click.option("--node-id", type=int, metavar="ID", help="Overrides `node-id` of the file.")
@click.option(
    "--advertised-host",
    metavar="HOST",
    help="Overrides `advertised-host` of the file: the name that clients and other nodes use.",
)
@set_option
@log_format_option
@log_level_option("info")
def node(
    config: str,
    node_id: int | None,
    advertised_host: str | None,
    sets: tuple[str, ...],
    log_format: str,
    log_level: str,
) -> None:
    """Start one node of a cluster whose metadata is in etcd.

    The first SIGTERM or Ctrl-C hands over leadership and stops the node cleanly; a second one stops
    it at once. Nodes may share a file that leaves out what differs:

    \b
    penstock node --config node.toml
    penstock node --config shared.toml --node-id 2 --advertised-host penstock-2.example.com

    \b
    node-id = 2
    data = "/var/lib/penstock"
    host = "0.0.0.0"
    advertised-host = "penstock-2.example.com"
    rack = "east"
    [etcd]
    endpoints = ["http://10.0.0.1:2379", "http://10.0.0.2:2379"]
    """
    with quick_imports():
        from penstock.node.config import load
        from penstock.node.process import run

    flags = {"node_id": node_id, "advertised_host": advertised_host}
    loaded = load(config, flags, parse_pairs(sets, "--set"))
    if loaded.etcd is None:
        raise UserError(
            f"{config} has no [etcd] section with endpoints, so there is no cluster to join; "
            "start a single node with `penstock up`"
        )
    set_up(log_format, log_level, node=loaded.node_id)
    run(loaded, ready_notice(loaded.data_dir))
