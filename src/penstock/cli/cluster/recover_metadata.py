"""`penstock cluster recover-metadata`: makes the metadata anew of what nodes and logs know.

Run for every node while none runs; by itself it shows what it would do. What is found and decided
is `penstock.node.metadata_recovery`'s and `penstock.cluster.metadata.recovery`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.errors import UserError

if TYPE_CHECKING:
    from penstock.node.metadata_recovery import RecoveryOutcome

LINES_MAX = 200
"""Of what is done; the rest is counted."""


@click.command("recover-metadata")
@click.option("--config", metavar="FILE", help="The node's file, as `penstock node` takes it.")
@click.option("--data", metavar="DIR", help="A node's data directory, as `penstock up` takes it.")
@click.option("--node-id", type=int, metavar="N", help="The node's id, with --data [1].")
@click.option(
    "--without",
    type=int,
    multiple=True,
    metavar="N",
    help="A node whose directory is lost for good; repeatable.",
)
@click.option("-y", "--yes", is_flag=True, help="Do it; without, it is only shown.")
def recover_metadata(
    config: str | None, data: str | None, node_id: int | None, without: tuple[int, ...], yes: bool
) -> None:
    """Make the metadata anew when etcd or metadata.db was lost or restored from a backup.

    Stop all nodes, then run it for each of them, in any order: every node has its say, and the last
    one does it. Topics come back with their ids and configs, leaders are those with the most, and
    producer ids go on above all that were used. Logs are only read.

    \b
    penstock cluster recover-metadata --config node-1.toml
    penstock cluster recover-metadata --config node-1.toml --yes
    penstock cluster recover-metadata --data ./penstock-data --yes
    """
    import asyncio

    from penstock.node.config import load
    from penstock.node.join import CannotJoin
    from penstock.node.metadata_recovery import CannotRecover, recover
    from penstock.node.ports import real_ports

    if (config is None) == (data is None):
        raise UserError("name the node by --config FILE, or by --data DIR")
    loaded = load(config, {"data_dir": data, "node_id": node_id}, {})

    async def work() -> RecoveryOutcome:
        return await recover(real_ports(loaded.etcd), loaded, without, apply=yes)

    try:
        outcome = asyncio.run(work())
    except (CannotRecover, CannotJoin) as error:
        raise UserError(str(error)) from error
    for line in lines_of(outcome, is_done=yes):
        print(line)


def lines_of(outcome: RecoveryOutcome, *, is_done: bool) -> list[str]:
    """Lines that report the outcome."""
    plan = outcome.plan
    if plan is None:
        return [f"{outcome.where} is not older than node {outcome.node_id}: nothing to do"]
    lines = [f"{outcome.where}: {text}" for text in outcome.older]
    said = ", ".join(map(str, outcome.reported))
    if plan.missing:
        missing = ", ".join(map(str, plan.missing))
        verb = "has had its say" if is_done else "would have its say"
        lines.append(
            f"node {outcome.node_id} {verb} (so far: {said}); still to come: node {missing}. Run "
            "this for each of them, or --without a node that is lost"
        )
    else:
        lines += plan.done[:LINES_MAX]
        if len(plan.done) > LINES_MAX:
            lines.append(f"... and {len(plan.done) - LINES_MAX} more")
    lines += [f"please check: {text}" for text in plan.check[:LINES_MAX]]
    if not is_done:
        lines.append("nothing was done; add --yes to do it")
    elif not plan.missing:
        lines.append("the metadata is recovered: start the nodes")
    return lines
