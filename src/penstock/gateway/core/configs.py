"""Reads and alters configs of topics and groups for the gateway protocols.

A change is computed from the configs at that moment; this node's image has it when the call
returns. Callers check permissions.
"""

from collections.abc import Callable, Mapping

from penstock.broker.api.context import Context
from penstock.cluster.configs import config_changes
from penstock.cluster.configs.config_changes import Alteration, Op
from penstock.cluster.configs.config_types import Value, counts_by_address
from penstock.cluster.configs.configs import BrokerConfigs, Scope, topic_value
from penstock.cluster.metadata.image import TopicImage

Changes = Mapping[str, str | None]
"""Values by config; None unsets one."""


def topic_config(topic: TopicImage, name: str, configs: BrokerConfigs) -> Value:
    """Effective value of a topic's config."""
    return topic_value(name, topic.configs, configs)


def connections_max(configs: BrokerConfigs, address: str) -> int:
    """Maximum number of connections from an address."""
    overrides = counts_by_address(configs.text("max.connections.per.ip.overrides") or "")
    return overrides.get(address, configs.integer("max.connections.per.ip"))


class Configs:
    """Alters configs in the cluster's metadata."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def alter_topic(self, name: str, edit: Callable[[Mapping[str, str]], Changes]) -> None:
        """Alters a topic. `edit` gets the topic's overrides and may be called more than once."""

        def decide(present: Mapping[str, str]) -> dict[str, str]:
            return config_changes.altering(Scope.TOPIC, _steps(edit(present)))(present)

        store = self._ctx.admin.store
        await self._ctx.reached(await config_changes.alter_topic(store, name, decide))

    async def alter_group(self, group: str, changes: Changes) -> None:
        edit = config_changes.altering(Scope.GROUP, _steps(changes))
        ctx = self._ctx
        await ctx.reached(
            await config_changes.alter_group(ctx.admin.store, group, edit, ctx.configs)
        )


def _steps(changes: Changes) -> list[Alteration]:
    return [
        Alteration(name, Op.DELETE if value is None else Op.SET, value)
        for name, value in changes.items()
    ]
