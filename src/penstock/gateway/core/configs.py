"""Configs of topics and groups as gateways read and change them.

A change is decided from what is configured at that moment, and is known here when it returns.
Rights are the caller's to check.
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
    """The value that a topic runs with."""
    return topic_value(name, topic.configs, configs)


def connections_max(configs: BrokerConfigs, address: str) -> int:
    """How many connections an address may have."""
    overrides = counts_by_address(configs.text("max.connections.per.ip.overrides") or "")
    return overrides.get(address, configs.integer("max.connections.per.ip"))


class Configs:
    """The configs of the cluster."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def alter_topic(self, name: str, edit: Callable[[Mapping[str, str]], Changes]) -> None:
        """`edit` is given what the topic overrides, perhaps more than once."""

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
