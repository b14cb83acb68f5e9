"""`penstock completion`: the script that teaches a shell to complete commands and names."""

import click

VARIABLE = "_PENSTOCK_COMPLETE"
"""What the script sets to ask for words; click reads it."""


@click.command("completion", short_help="Print the script that completes words in a shell.")
@click.argument(
    "shell", type=click.Choice(["bash", "zsh", "fish"]), help="The shell to complete for."
)
def completion(shell: str) -> None:
    """Print the script that completes commands, options, topics and groups.

    Names of topics and groups are asked of the cluster that the command would talk to; where it
    does not answer within a second, none are offered.

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
    # Not `made.source()`: for bash that first looks whether a new enough bash is here.
    print(ShellComplete.source(made))
