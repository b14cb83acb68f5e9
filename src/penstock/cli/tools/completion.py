"""`penstock completion`: prints the completion script of a shell."""

import click

VARIABLE = "_PENSTOCK_COMPLETE"
"""Variable by which the script asks click for completions."""


@click.command("completion", short_help="Print a shell completion script.")
@click.argument(
    "shell", type=click.Choice(["bash", "zsh", "fish"]), help="The shell to complete for."
)
def completion(shell: str) -> None:
    """Print the script that completes commands, options, topics and groups in a shell.

    Names of topics and groups come from the cluster of the command; if it does not answer within a
    second, none are offered.

    \b
    penstock completion bash > ~/.local/share/bash-completion/completions/penstock
    penstock completion zsh > ~/.zfunc/_penstock
    penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root()
    made = kind(root.command, {}, "penstock", VARIABLE)
    # Not `made.source()`, which checks the local bash's version first.
    print(ShellComplete.source(made))
