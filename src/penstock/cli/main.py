"""Entry point of the `penstock` command: command tree, error reporting, exit codes.

Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted. Standard output holds only the
requested output; messages go to standard error.
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

# A paragraph that click must not rewrap, and that begins with a command.
EXAMPLES = re.compile(r"\n\n\x08\n((?:penstock|echo|printf) .*(?:\n.+)*)")


class Help(click.HelpFormatter):
    """Help formatter that puts a heading above the examples."""

    def write_text(self, text: str) -> None:
        super().write_text(EXAMPLES.sub(_headed, text, count=1))


def _headed(found: re.Match[str]) -> str:
    lines = found[1].splitlines()
    return "\n".join(["\n\n\x08\nExamples:", *(f"  {line.strip()}" for line in lines)])


class Root(click.Group):
    """Root command, which looks commands up in `cli.command_table`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the sections of the command table in aligned columns."""
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
        """Runs the command. A closed output pipe (`| head`) is not a failure."""
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
    help="Properties file with client security settings, as for Kafka's tools: "
    "security.protocol, sasl.username, sasl.password, ssl.ca.location ...",
)
@click.option(
    "--profile",
    envvar="PENSTOCK_PROFILE",
    show_envvar=True,
    metavar="NAME",
    shell_complete=profile_names,
    help="Use this profile's cluster instead of the current one; see `penstock profile`.",
)
def app(command_config: str | None, profile: str | None) -> None:
    """A distributed message queue in Python that any Kafka client can use.

    \b
    penstock up                          start a broker here
    penstock produce greetings hello     write a record
    penstock consume greetings           read it
    penstock cheat                       common commands on one page
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
        # Python must not flush into the closed pipe at exit.
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
    # The message may quote text from a broker or a file.
    print(prefix + printable(message, "\n"), file=sys.stderr)


def main() -> None:
    sys.stdout = whole(sys.stdout)
    sys.exit(run())


if __name__ == "__main__":
    main()
