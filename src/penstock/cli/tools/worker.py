"""`penstock worker module:worker`: runs a worker declared in Python."""

import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import profile_file
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.logs import log_format_option, log_level_option, set_up
from penstock.cli.terminal.session import security_settings

if TYPE_CHECKING:
    from penstock.app.worker import Worker

CHILD_VARIABLE = "PENSTOCK_WORKER_CHILD"
"""Set in the environment of children of `--processes`: they run the worker themselves."""
PROCESSES_MAX = 256
IMPORT_FILES = (__file__, "<frozen importlib", importlib.__file__ or "")
"""Files whose frames precede those of the loaded module in a traceback."""


@click.command("worker", short_help="Run a worker declared in Python.")
@click.argument("target", metavar="MODULE:WORKER", help="The module, and the worker's name in it.")
@click.option(
    "-b",
    "--brokers",
    envvar="PENSTOCK_BROKERS",
    show_envvar=True,
    metavar="HOST:PORT,...",
    help="Bootstrap brokers, instead of those that the worker names.",
)
@click.option(
    "--tracing",
    is_flag=True,
    envvar="PENSTOCK_TRACING",
    show_envvar=True,
    help="Trace handled messages; send spans to OTEL_EXPORTER_OTLP_ENDPOINT.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    show_default=True,
    help="Run so many processes; one that dies is started again.",
)
@click.option(
    "--reload", is_flag=True, help="Restart when a Python file below this directory changes."
)
@log_format_option
@log_level_option("info")
def worker(
    target: str,
    brokers: str | None,
    tracing: bool,
    processes: int,
    reload: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Run the worker named WORKER in MODULE, until SIGTERM or Ctrl-C.

    The current directory is searched first. On a signal, running handlers may finish; messages that
    they do not finish are released for another worker.

    \b
    penstock worker shop.jobs:worker
    penstock worker shop.jobs:worker --processes 4
    penstock worker shop.jobs:worker --reload
    """
    if (processes > 1 or reload) and not os.environ.get(CHILD_VARIABLE):
        from penstock.cli.tools.worker_processes import run_processes

        sys.exit(run_processes(processes, reload=reload))
    found = load(target)
    set_up(log_format, log_level)
    if tracing:
        from penstock.runtime.tracing import start

        start("penstock-worker")
        found.client_options["tracing"] = True
    if brokers:
        found.brokers = brokers
    # A worker names its brokers: only an explicitly named profile overrides them.
    is_named = click.get_current_context().find_root().params.get("profile") is not None
    if is_named and not brokers and (profile := profile_file.chosen()) is not None:
        found.brokers = profile[1].brokers
    settings, _ = security_settings(takes_one_in_use=False)
    if settings:
        found.client_options["security"] = settings
    try:
        found.run()
    except ValueError as error:
        raise UserError(str(error)) from None


def load(target: str) -> "Worker":
    """Loads the worker `module:name`. Raises UserError if it cannot."""
    from penstock.app.worker import Worker

    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise UserError(f"{target!r} is not MODULE:WORKER, like shop.jobs:worker")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            raise UserError(f"no module {error.name!r} in this directory or on the path") from None
        raise _broken(module_name, error) from None
    except Exception as error:
        raise _broken(module_name, error) from None
    found = getattr(module, name, None)
    if found is None:
        raise UserError(f"module {module_name!r} has no {name!r}")
    if not isinstance(found, Worker):
        raise UserError(f"{target} is a {type(found).__name__}, not a penstock.Worker")
    return found


def _broken(module_name: str, error: Exception) -> UserError:
    """Prints the traceback from the module's own frames on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(IMPORT_FILES):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)
    return UserError(f"module {module_name!r} does not load: {type(error).__name__}: {error}")
