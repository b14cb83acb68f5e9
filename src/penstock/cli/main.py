"""Entry point of the `penstock` command: the tree of commands, and how a failure ends.

Owns the exit codes: 0 done, 1 it failed, 2 the command line is wrong, 130 interrupted. Whatever
happens, standard output holds only what was asked for; messages go to standard error.
"""

import os
import sys
from collections.abc import Sequence

import click

from penstock import __version__
from penstock.cli import (
    bench,
    cluster,
    cluster_moves,
    configs,
    consume,
    groups,
    node,
    plan,
    produce,
    topics,
    txns,
    up,
    wire,
)
from penstock.cli.errors import PipeClosed, UserError, explain


class Root(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        """Runs the command. A reader that has had enough (`| head`) is no failure to us."""
        try:
            result: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise PipeClosed from error
        return result


@click.group(
    "penstock",
    cls=Root,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="penstock %(version)s")
def app() -> None:
    """A distributed message queue in Python that any Kafka client can use."""


app.add_command(up.up)
app.add_command(node.node)
app.add_command(cluster.cluster)
for command in cluster_moves.COMMANDS:
    cluster.cluster.add_command(command)
app.add_command(plan.plan_command)
app.add_command(topics.topic)
app.add_command(produce.produce)
app.add_command(consume.consume)
app.add_command(groups.group)
app.add_command(txns.txn)
app.add_command(bench.bench)
app.add_command(configs.config)
app.add_command(wire.wire)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    try:
        result = app.main(
            None if arguments is None else list(arguments),
            prog_name="penstock",
            standalone_mode=False,
        )
    except click.ClickException as error:
        return _wrong_usage(error)
    except (click.Abort, KeyboardInterrupt):
        print(file=sys.stderr)
        return 130
    except PipeClosed:
        # Nothing may be flushed into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as error:
        text = error.args[0] if isinstance(error, UserError) else explain(error)
        if text is None:
            raise
        _complain(text)
        return 1
    return result if isinstance(result, int) else 0


def _wrong_usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message())
        return 2
    message = " ".join(error.format_message().split())
    message = message if message.endswith(("?", ")")) else message.rstrip(".")
    path = context.command_path if context is not None else "penstock"
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
