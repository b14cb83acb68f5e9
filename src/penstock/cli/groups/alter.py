"""`penstock group alter`: changes configs of a group, such as its delivery limit.

The group need not exist: its configs may be set before its first member joins.
"""

from __future__ import annotations

import click

from penstock.cli.data.configs import change_options, show_changes
from penstock.cli.server.up import parse_pairs
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import group_config_names, group_names
from penstock.cli.terminal.session import CommandSession, brokers_option, run


@click.command("alter")
@click.argument("name", help="The group.", shell_complete=group_names)
@change_options(group_config_names)
@brokers_option
def alter(name: str, configs: tuple[str, ...], deletes: tuple[str, ...], brokers: str) -> None:
    """Change configs of a group: leases, retries and dead letters of a queue, timeouts.

    They apply at once, also to a group that has no members yet. `penstock config list -g NAME`
    lists them.

    \b
    penstock group alter workers -c share.delivery.count.limit=3
    penstock group alter workers -c share.record.lock.duration.ms=60000 -d share.retry.backoff.ms
    """
    pairs = parse_pairs(configs, "-c")
    if not pairs and not deletes:
        raise UserError("nothing to change; pass -c name=value or -d name")

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.admin import GROUP_CONFIGS, Admin

        await Admin(session.cluster).alter_configs(GROUP_CONFIGS, name, pairs, deletes)

    run(brokers, work)
    print(f"altered group {name}: {show_changes(pairs, deletes)}")
