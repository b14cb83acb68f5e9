"""Entry point of the `penstock` command: the tree of commands, and how a failure ends.

Owns the exit codes: 0 done, 1 it failed, 2 the command line is wrong, 130 interrupted. Whatever
happens, standard output holds only what was asked for; messages go to standard error.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from penstock import __version__
from penstock.cli import bench, configs, consume, produce, topics, up, wire
from penstock.cli.errors import UserError, explain

# typer brings its own copy of click or uses the installed one, depending on its version.
_ClickError: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="penstock",
    help="A distributed message queue in Python that any Kafka client can use.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
) -> None:
    """A distributed message queue in Python that any Kafka client can use."""


app.command("up")(up.up)
app.add_typer(topics.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("bench")(bench.bench)
app.add_typer(configs.app, name="config")
app.add_typer(wire.app, name="wire")


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    command = typer.main.get_command(app)
    try:
        result = command.main(
            None if arguments is None else list(arguments),
            prog_name="penstock",
            standalone_mode=False,
        )
    except _ClickError as error:
        return _wrong_usage(error)
    except (typer.Abort, KeyboardInterrupt):
        print(file=sys.stderr)
        return 130
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        # The reader (`| head`) has had enough; typer calls that a failure, we do not. Nothing
        # may be flushed into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as error:
        text = error.args[0] if isinstance(error, UserError) else explain(error)
        if text is None:
            raise
        _complain(text)
        return 1
    return result if isinstance(result, int) else 0


def _wrong_usage(error: Any) -> int:
    message = " ".join(str(error.format_message()).split())
    if error.exit_code == 0 or type(error).__name__ == "NoArgsIsHelpError":
        print(message if error.ctx is None else error.ctx.get_help())
        return int(error.exit_code)
    path = error.ctx.command_path if getattr(error, "ctx", None) is not None else "penstock"
    message = message.rstrip(".") if not message.endswith("?") else message
    _complain(f"{message} (see `{path} --help`)")
    return 2


def _complain(message: str) -> None:
    prefix = "penstock: "
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        prefix = f"\x1b[1;31m{prefix}\x1b[0m"
    print(f"{prefix}{message}", file=sys.stderr)


def main() -> None:
    sys.exit(run())


if __name__ == "__main__":
    main()
