"""`penstock worker module:worker`: runs a worker that was declared in Python."""

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING

import click

from penstock.cli.errors import UserError

if TYPE_CHECKING:
    from penstock.app.worker import Worker


@click.command("worker")
@click.argument("target", metavar="MODULE:WORKER", help="The module, and the worker in it.")
@click.option(
    "-b",
    "--brokers",
    envvar="PENSTOCK_BROKERS",
    show_envvar=True,
    metavar="HOST:PORT,...",
    help="Brokers to connect to, instead of those the worker names.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to tell on standard error.",
)
def worker(target: str, brokers: str | None, log_level: str) -> None:
    """Runs the worker named WORKER in MODULE, until SIGTERM or Ctrl-C.

    The current directory is searched first. Handlers that run when a signal comes may finish; what
    they do not finish is given back, for another worker.

    \b
        penstock worker shop.jobs:worker
    """
    found = load(target)
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if brokers:
        found.brokers = brokers
    path = click.get_current_context().find_root().params.get("command_config")
    if path is not None:
        found.client_options["security"] = _read_security(path)
    try:
        found.run()
    except ValueError as error:
        raise UserError(str(error)) from None


def _read_security(path: str) -> dict[str, str]:
    from penstock.client.security import read_properties

    try:
        with open(path, encoding="utf-8") as file:
            return read_properties(file.read())
    except (OSError, ValueError) as error:
        raise UserError(f"--command-config {path}: {error}") from None


def load(target: str) -> "Worker":
    """The worker that `module:name` means. Raises UserError, saying what is wrong."""
    from penstock.app.worker import Worker

    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise UserError(f"{target!r} is not MODULE:WORKER, like shop.jobs:worker")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            raise UserError(f"there is no module {error.name!r} here or on the path") from None
        raise
    found = getattr(module, name, None)
    if found is None:
        raise UserError(f"module {module_name!r} has no {name!r}")
    if not isinstance(found, Worker):
        raise UserError(f"{target} is a {type(found).__name__}, not a penstock.Worker")
    return found
