"""`penstock mcp`: serves tools for AI assistants over the Model Context Protocol.

The SDK is an optional dependency (`penstock-mq[mcp]`), so it is imported on demand.
"""

from __future__ import annotations

import os
from typing import Final

import click
from click.core import ParameterSource

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.session import brokers_option, security_settings

REGISTRY_URL: Final = "http://127.0.0.1:8080"


@click.command("mcp")
@click.option(
    "--allow-writes", is_flag=True, help="Offer tools that change something; the default reads."
)
@click.option(
    "--transport",
    type=click.Choice(["stdio", "http"]),
    default="stdio",
    show_default=True,
    help="stdio: the assistant starts this command; http: it connects to /mcp.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="With http: loopback only.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8765,
    show_default=True,
    help="With http: the port.",
)
@click.option(
    "--http",
    "url",
    metavar="URL",
    default=REGISTRY_URL,
    show_default=True,
    help="HTTP address of a node, for the schema registry.",
)
@brokers_option
@click.pass_context
def mcp(
    context: click.Context,
    allow_writes: bool,
    transport: str,
    host: str,
    port: int,
    url: str,
    brokers: str,
) -> None:
    """Offer a cluster to AI assistants (MCP).

    Tools of the Model Context Protocol run commands of this command line, with its --profile and
    permissions; the cluster's ACLs and its audit log apply. Without --allow-writes every tool only
    reads. With it, a tool that changes something first shows what would happen.

    \b
    penstock mcp
    penstock mcp --transport http --port 8765
    penstock mcp --allow-writes -b localhost:9092
    """
    import asyncio
    from importlib import import_module

    import_module("mcp")  # First, so that its absence is explained and not that of a dependency.
    from penstock.cli.mcp.command_runner import CommandRunner
    from penstock.cli.mcp.reading import ReadingTools
    from penstock.cli.mcp.schema_registry import SchemaRegistry
    from penstock.cli.mcp.server import build
    from penstock.cli.mcp.writing import WritingTools

    if transport == "http":
        _refuse_exposure(host)
    run = CommandRunner(_environment(context, brokers))
    settings, _ = security_settings()
    writing = WritingTools(run) if allow_writes else None
    server = build(ReadingTools(run, SchemaRegistry(url, settings)), writing)
    if transport == "stdio":
        asyncio.run(server.run_stdio_async())
        return
    click.echo(f"penstock mcp ready http://{host}:{port}/mcp", err=True)
    asyncio.run(server.run_streamable_http_async(host=host, port=port))


def _environment(context: click.Context, brokers: str) -> dict[str, str]:
    """The options of this command for the commands that it runs.

    Brokers of a profile are left to the profile: its password is for them alone.
    """
    options = context.find_root().params
    found = {}
    if context.get_parameter_source("brokers") is ParameterSource.COMMANDLINE:
        found["PENSTOCK_BROKERS"] = brokers
    if options.get("profile") is not None:
        found["PENSTOCK_PROFILE"] = options["profile"]
    if options.get("command_config") is not None:
        found["PENSTOCK_COMMAND_CONFIG"] = os.path.abspath(options["command_config"])
    return found


def _refuse_exposure(host: str) -> None:
    """Raises UserError for an address that other machines reach.

    Callers would act with this user's permissions, without a login of their own.
    """
    import ipaddress

    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local:
        raise UserError(
            f"--host {host} is reachable from other machines, and every caller would act with your "
            "permissions; use 127.0.0.1, or start `penstock mcp` where the assistant runs"
        )
