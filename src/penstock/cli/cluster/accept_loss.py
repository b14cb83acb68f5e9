"""`penstock cluster accept-loss`: accepts the loss of records on a node.

Works on the node's data directory, whether the node runs or not.
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
@click.argument("partition", type=click.IntRange(min=0), required=False, help="Partition number.")
@click.option(
    "--all", "is_all", is_flag=True, help="Every replica whose log files are all missing."
)
@click.option("--data", required=True, metavar="DIR", help="The data directory of the node.")
@yes_option
def accept_loss(
    topic: str | None, partition: int | None, is_all: bool, data: str, yes: bool
) -> None:
    """Accept the loss of records, so that lost or damaged replicas of a node serve again.

    A replica whose directory is missing restarts empty, at its last known committed offset; a
    damaged one is truncated before the damage. The node applies this within a few seconds, or at
    its next start. A replica that other nodes have, too, is copied from them instead. Run the
    command on the node's machine, as the node's user.

    Use --all for a node that lost all of its logs: it takes every replica without log files.
    Damaged replicas still hold records; name them one by one.

    \b
    penstock cluster accept-loss orders 0 --data /var/lib/penstock
    penstock cluster accept-loss --all --data /var/lib/penstock
    """
    from penstock.cluster.metadata import accepted_losses
    from penstock.cluster.replication.high_watermark_checkpoint import FORMAT_KEY, HighWatermarkFile
    from penstock.runtime.disk import LocalDisk

    if is_all == (topic is not None) or (topic is None) != (partition is None):
        raise click.UsageError("pass a topic and a partition, or --all")
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
            f"Accept the loss of records of {what} on this node (known up to offset "
            f"{max(known[name] for name in found)})?"
        )
    else:
        found = _missing(disk, known, data)
        what = f"{len(found):,} {'replica' if len(found) == 1 else 'replicas'}"
        question = f"Accept the loss of records of {what} on this node ({_shown(found)})?"
    confirm(question, yes)
    accepted_losses.ask(disk, data, *found)
    print(
        f"{what}: loss accepted; the node applies it within a few seconds if it runs, else at its "
        "next start"
    )


def _named(known: Mapping[str, int], topic: str, partition: int, data: str) -> list[str]:
    found = [name for name in known if _is_of(name, topic, partition)]
    if not found:
        raise UserError(
            f"{data} does not know a replica of {topic}-{partition}: check topic, partition and "
            "--data, or delete the topic"
        )
    return found


def _missing(disk: Disk, known: Mapping[str, int], data: str) -> list[str]:
    from penstock.cluster.metadata import accepted_losses

    if not known:
        raise UserError(f"{data} does not know any replica: check --data")
    found = accepted_losses.missing(disk, data, sorted(known))
    if not found:
        raise UserError(
            f"all replicas in {data} have log files: to accept the loss of a damaged one, name its "
            "topic and partition"
        )
    return found


def _shown(names: list[str]) -> str:
    """Lists the partitions of these directory names."""
    from penstock.cluster.storage.log_directories import listed

    shown = []
    for name in names:
        directory, _, index = name.rpartition("/")
        shown.append(f"{directory.rpartition('.')[0]}-{index}")
    return listed(shown, NAMED_MAX)


def _is_of(name: str, topic: str, partition: int) -> bool:
    """True if this directory, `<topic>.<topic id>/<partition>`, belongs to the partition."""
    from penstock.cluster.storage.log_directories import NAME_CHARACTERS_MAX

    directory, _, index = name.rpartition("/")
    return index == str(partition) and (directory.rpartition(".")[0] == topic[:NAME_CHARACTERS_MAX])
