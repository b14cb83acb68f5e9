"""`penstock cluster recover-metadata`: rebuilds lost metadata from the nodes' state and logs.

The operator runs it for every node while none runs; without --yes it only shows the plan.
`penstock.node.metadata_recovery` and `penstock.cluster.metadata.metadata_rebuild` do the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.errors import UserError

if TYPE_CHECKING:
    from penstock.node.metadata_recovery import RecoveryOutcome

LINES_MAX = 200
"""Limit of printed actions; the rest is counted."""


@click.command("recover-metadata")
@click.option("--config", metavar="FILE", help="The node's config file, as for `penstock node`.")
@click.option("--data", metavar="DIR", help="The node's data directory, as for `penstock up`.")
@click.option("--node-id", type=int, metavar="N", help="The node's id, with --data [1].")
@click.option(
    "--without",
    type=int,
    multiple=True,
    metavar="N",
    help="A node whose data directory is lost; repeatable.",
)
@click.option("-y", "--yes", is_flag=True, help="Apply the plan instead of only showing it.")
def recover_metadata(
    config: str | None, data: str | None, node_id: int | None, without: tuple[int, ...], yes: bool
) -> None:
    """Rebuild the metadata after etcd or metadata.db was lost or restored from a backup.

    Stop all nodes, then run it for each of them, in any order: each run reports what its node
    knows, and the last one rebuilds the metadata. Topics return with their ids and configs, the
    replicas with the most records become leaders, and new producer ids start above all used ones.
    Logs are only read.

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
        raise UserError("no node given: pass --config FILE or --data DIR")
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
    """Returns the lines that report the outcome."""
    plan = outcome.plan
    if plan is None:
        return [f"{outcome.where} is not older than node {outcome.node_id}: nothing to do"]
    lines = [f"{outcome.where}: {text}" for text in outcome.older]
    said = ", ".join(map(str, outcome.reported))
    if plan.missing:
        missing = ", ".join(map(str, plan.missing))
        verb = "has reported" if is_done else "would report"
        lines.append(
            f"node {outcome.node_id} {verb} (so far: {said}); still missing: node {missing}. Run "
            "this for each of them, or pass --without for a node that is lost"
        )
    else:
        lines += plan.done[:LINES_MAX]
        if len(plan.done) > LINES_MAX:
            lines.append(f"... and {len(plan.done) - LINES_MAX} more")
    lines += [f"check: {text}" for text in plan.check[:LINES_MAX]]
    if not is_done:
        lines.append("nothing was changed; pass --yes to apply the plan")
    elif not plan.missing:
        lines.append("the metadata is recovered: start the nodes")
    return lines
