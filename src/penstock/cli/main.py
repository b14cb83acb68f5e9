"""Entry point of the `penstock` command: the tree of commands, and how a failure ends.

Owns the exit codes: 0 done, 1 it failed, 2 the command line is wrong, 130 interrupted. Whatever
happens, standard output holds only what was asked for; messages go to standard error.
"""

import os
import re
import sys
from collections.abc import Sequence

import click

from penstock import __version__
from penstock.cli.command_table import COMMANDS, SECTIONS, load
from penstock.cli.terminal.errors import PipeClosed, UserError, explain
from penstock.cli.terminal.name_completion import profile_names
from penstock.cli.terminal.output import printable, whole

# A paragraph that is not to be rewrapped, and begins with a command.
EXAMPLES = re.compile(r"\n\n\x08\n((?:penstock|echo|printf) .*(?:\n.+)*)")


class Help(click.HelpFormatter):
    """Help as click writes it, with a heading above the examples."""

    def write_text(self, text: str) -> None:
        super().write_text(EXAMPLES.sub(_headed, text, count=1))


def _headed(found: re.Match[str]) -> str:
    lines = found[1].splitlines()
    return "\n".join(["\n\n\x08\nExamples:", *(f"  {line.strip()}" for line in lines)])


class Root(click.Group):
    """The commands are a table, looked up by name: see `cli.command_table`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """By what people want to do, in columns that line up."""
        width = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            limit = formatter.width - width - 6
            rows = [
                (name.ljust(width), command.get_short_help_str(limit))
                for name in names
                if (command := load(name)) is not None
            ]
            with formatter.section(title):
                formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx) from error

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
@click.option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False),
    envvar="PENSTOCK_COMMAND_CONFIG",
    show_envvar=True,
    help="A file of name=value for brokers that ask who is there: security.protocol, "
    "sasl.username, sasl.password, ssl.ca.location ... as Kafka's tools take it.",
)
@click.option(
    "--profile",
    envvar="PENSTOCK_PROFILE",
    show_envvar=True,
    metavar="NAME",
    shell_complete=profile_names,
    help="Talk to this cluster, instead of the one in use; see `penstock profile`.",
)
def app(command_config: str | None, profile: str | None) -> None:
    """A distributed message queue in Python that any Kafka client can use.

    \b
    penstock up                          start a broker here
    penstock produce greetings hello     write a record
    penstock consume greetings           read it
    penstock cheat                       what else people do, on one page
    """


click.Context.formatter_class = Help


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
    # What a broker or a file says is in it.
    print(prefix + printable(message, "\n"), file=sys.stderr)


def main() -> None:
    sys.stdout = whole(sys.stdout)
    sys.exit(run())


if __name__ == "__main__":
    main()
