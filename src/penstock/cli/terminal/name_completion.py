"""Shell completion of topic, group, profile and config names, read from the cluster.

The user waits after pressing Tab, so the cluster gets `WAIT_SECONDS` to answer. After that, or on
an error, completion offers nothing and stays silent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from penstock.cli.terminal.session import CommandSession

WAIT_SECONDS = 1.0
OFFERED_MAX = 1_000


def topic_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _offered(ctx, incomplete, _topics)


def dead_letter_topic_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[str]:
    """Completes names of dead-letter topics."""
    return [name for name in topic_names(ctx, param, incomplete) if name.endswith(".dlq")]


def group_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _offered(ctx, incomplete, _groups)


def profile_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from penstock.cli.terminal import profile_file

    try:
        return [n for n in sorted(profile_file.read().by_name) if n.startswith(incomplete)]
    except Exception:
        return []


def topic_config_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from penstock.cluster.configs.config_table import TOPIC_CONFIGS

    return sorted(c.name for c in TOPIC_CONFIGS if c.name.startswith(incomplete))


def group_config_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from penstock.cluster.configs.config_table import GROUP_CONFIGS

    return sorted(c.name for c in GROUP_CONFIGS if c.name.startswith(incomplete))


def broker_config_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes the broker configs that may change at runtime."""
    from penstock.cluster.configs.config_table import BROKER_CONFIGS
    from penstock.cluster.configs.config_types import UpdateMode

    return [
        c.name
        for c in BROKER_CONFIGS
        if c.mode is not UpdateMode.READ_ONLY and c.name.startswith(incomplete)
    ]


async def _topics(session: CommandSession) -> list[str]:
    from penstock.client.admin.admin import Admin

    return [t.name for t in await Admin(session.cluster).list_topics() if not t.is_hidden]


async def _groups(session: CommandSession) -> list[str]:
    from penstock.client.admin.groups import list_groups

    return [group.name for group in await list_groups(session.cluster)]


def _offered(
    ctx: click.Context, incomplete: str, ask: Callable[[CommandSession], Awaitable[list[str]]]
) -> list[str]:
    from penstock.cli.terminal.session import default_brokers, run

    try:
        with ctx.scope(cleanup=False):
            brokers = ctx.params.get("brokers") or default_brokers()
            names = run(brokers, ask, within_s=WAIT_SECONDS)
    except Exception:
        return []
    fitting = [name for name in sorted(names) if name.startswith(incomplete)]
    return fitting[:OFFERED_MAX]
