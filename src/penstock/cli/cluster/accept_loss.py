"""`penstock cluster accept-loss`: go on without records that a node has lost.

Works on the data directory, on the node's own machine, whether the node runs or not.
"""

from __future__ import annotations

import click

from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError


@click.command("accept-loss")
@click.argument("topic", help="The topic's name.")
@click.argument("partition", type=click.IntRange(min=0), help="Which of its partitions.")
@click.option("--data", required=True, metavar="DIR", help="The data directory of the node.")
@yes_option
def accept_loss(topic: str, partition: int, data: str, yes: bool) -> None:
    """Have a node go on with a replica that is lost, without the records that are gone.

    A replica whose directory is missing goes on empty, at the offset up to where it was known to be
    committed; one that is damaged ends before the damage. The node takes it up within a few
    seconds, or when it next starts. Run it on the node's machine, as the node's user.

    \b
    penstock cluster accept-loss orders 0 --data /var/lib/penstock
    """
    from penstock.cluster.metadata import accepted_losses
    from penstock.cluster.replication.high_watermark_checkpoint import HighWatermarks
    from penstock.runtime.disk import LocalDisk

    disk = LocalDisk()
    known = HighWatermarks(disk, data).read()
    found = [name for name in known if _is_of(name, topic, partition)]
    if not found:
        raise UserError(
            f"{data} does not know of a replica of {topic}-{partition}: check the topic, the "
            "partition and --data, or delete the topic"
        )
    confirm(
        f"Give up what is lost of {topic}-{partition} on this node (known up to offset "
        f"{max(known[name] for name in found)})?",
        yes,
    )
    for name in found:
        accepted_losses.ask(disk, data, name)
    print(
        f"{topic}-{partition}: the node goes on without what is lost, within a few seconds "
        "if it runs, else when it starts"
    )


def _is_of(name: str, topic: str, partition: int) -> bool:
    """True if this directory, `<topic>.<topic id>/<partition>`, is the partition's."""
    from penstock.cluster.storage.log_directories import NAME_CHARACTERS_MAX

    directory, _, index = name.rpartition("/")
    return index == str(partition) and (directory.rpartition(".")[0] == topic[:NAME_CHARACTERS_MAX])
