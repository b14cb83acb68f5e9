"""Authorizer of every endpoint: permissions by the cluster's present ACLs.

Off until `authorizer.class.name` names one (any name means ours): then every principal may do
everything. Follows the image: a change of ACLs or configs is in force from the next request on.
"""

from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.image import Image
from penstock.security.acl_types import NODE_USER, WILDCARD, Operation, ResourceType
from penstock.security.acls import AccessControl


class Authorizer:
    """Decides from memory: `allows` is called several times per request."""

    def __init__(self, configs: BrokerConfigs, image: Image) -> None:
        self._configs = configs
        self._generation = configs.generation
        self._rules: AccessControl | None = None
        self._build(image)

    @property
    def is_on(self) -> bool:
        return self._rules is not None

    def follow(self, before: Image, after: Image) -> None:
        if before.acls is not after.acls or self._generation != self._configs.generation:
            self._generation = self._configs.generation
            self._build(after)

    def _build(self, image: Image) -> None:
        configs = self._configs
        if not configs.text("authorizer.class.name"):
            self._rules = None
            return
        self._rules = AccessControl(
            image.acls,
            super_users=[f"User:{NODE_USER}", *super_users(configs.text("super.users") or "")],
            allows_unlisted=configs.flag("allow.everyone.if.no.acl.found"),
        )

    def allows(
        self,
        principal: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        host: str = WILDCARD,
    ) -> bool:
        rules = self._rules
        return rules is None or rules.allows(principal, operation, resource, name, host)

    def shows(self, principal: str, host: str, topic: str) -> bool:
        """True if `principal` may see the topic."""
        return self.allows(principal, Operation.DESCRIBE, ResourceType.TOPIC, topic, host)

    def allows_some(
        self, principal: str, operation: Operation, resource: ResourceType, host: str = WILDCARD
    ) -> bool:
        rules = self._rules
        return rules is None or rules.allows_some(principal, operation, resource, host)


def super_users(text: str) -> list[str]:
    """Parses super users: `User:admin;User:ops`, as in Kafka."""
    return [name.strip() for name in text.split(";") if name.strip()]
