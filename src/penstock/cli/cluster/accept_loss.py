"""`penstock cluster accept-loss`: go on without records that a node has lost.

Works on the data directory, on the node's own machine, whether the node runs or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.base.ports import Disk

NAMED_MAX = 20


@click.command("accept-loss")
@click.argument("topic", required=False, help="The topic's name.")
@click.argument(
    "partition", type=click.IntRange(min=0), required=False, help="Which of its partitions."
)
@click.option(
    "--all", "is_all", is_flag=True, help="Every replica of which no log file is there any more."
)
@click.option("--data", required=True, metavar="DIR", help="The data directory of the node.")
@yes_option
def accept_loss(
    topic: str | None, partition: int | None, is_all: bool, data: str, yes: bool
) -> None:
    """Have a node go on with replicas that are lost, without the records that are gone.

    A replica whose directory is missing goes on empty, at the offset up to where it was known to be
    committed; one that is damaged ends before the damage. The node takes it up within a few
    seconds, or when it next starts. A replica that others have, too, is copied from them instead.
    Run it on the node's machine, as the node's user.

    With --all, for a node that lost all of its logs: every replica of which no file is left.
    Damaged ones, of which there still are records, are named one by one.

    \b
    penstock cluster accept-loss orders 0 --data /var/lib/penstock
    penstock cluster accept-loss --all --data /var/lib/penstock
    """
    from penstock.cluster.metadata import accepted_losses
    from penstock.cluster.replication.high_watermark_checkpoint import FORMAT_KEY, HighWatermarkFile
    from penstock.runtime.disk import LocalDisk

    if is_all == (topic is not None) or (topic is None) != (partition is None):
        raise click.UsageError("give a topic and a partition, or --all")
    disk = LocalDisk()
    known = {
        name: end
        for name, end in HighWatermarkFile(disk, data).read().items()
        if name != FORMAT_KEY
    }
    if topic is not None and partition is not None:
        found = _named(known, topic, partition, data)
        what = f"{topic}-{partition}"
        question = (
            f"Give up what is lost of {what} on this node (known up to offset "
            f"{max(known[name] for name in found)})?"
        )
    else:
        found = _missing(disk, known, data)
        what = f"{len(found):,} {'replica' if len(found) == 1 else 'replicas'}"
        question = f"Give up what is lost of {what} on this node ({_shown(found)})?"
    confirm(question, yes)
    accepted_losses.ask(disk, data, *found)
    print(
        f"{what}: the node goes on without what is lost, within a few seconds "
        "if it runs, else when it starts"
    )


def _named(known: Mapping[str, int], topic: str, partition: int, data: str) -> list[str]:
    found = [name for name in known if _is_of(name, topic, partition)]
    if not found:
        raise UserError(
            f"{data} does not know of a replica of {topic}-{partition}: check the topic, the "
            "partition and --data, or delete the topic"
        )
    return found


def _missing(disk: Disk, known: Mapping[str, int], data: str) -> list[str]:
    from penstock.cluster.metadata import accepted_losses

    if not known:
        raise UserError(f"{data} does not know of any replica: check --data")
    found = accepted_losses.missing(disk, data, sorted(known))
    if not found:
        raise UserError(
            f"no replica that {data} knows of lacks its log files: name the topic and the "
            "partition of one that is damaged"
        )
    return found


def _shown(names: list[str]) -> str:
    """The partitions, by the names of their directories."""
    from penstock.cluster.storage.log_directories import listed

    shown = []
    for name in names:
        directory, _, index = name.rpartition("/")
        shown.append(f"{directory.rpartition('.')[0]}-{index}")
    return listed(shown, NAMED_MAX)


def _is_of(name: str, topic: str, partition: int) -> bool:
    """True if this directory, `<topic>.<topic id>/<partition>`, is the partition's."""
    from penstock.cluster.storage.log_directories import NAME_CHARACTERS_MAX

    directory, _, index = name.rpartition("/")
    return index == str(partition) and (directory.rpartition(".")[0] == topic[:NAME_CHARACTERS_MAX])
