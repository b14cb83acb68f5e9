"""Types and names of the cluster that the gateway protocols use.

The protocol packages import no module of the cluster or of the coordinators (import-linter checks
that).
"""

from penstock.cluster.configs.config_table import TOPIC_CONFIGS
from penstock.cluster.configs.config_types import Value
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.image import Image, TopicImage
from penstock.cluster.metadata.store_keys import FanoutRecord, SubscriptionRecord, UserRecord
from penstock.coordinator.groups_by_topic import PositionKind
from penstock.coordinator.queues.policy import (
    DEAD_LETTER_SUFFIX,
    DEAD_LETTERS,
    DEDUP_SCOPE,
    DELIVERIES_MAX,
)
from penstock.coordinator.registry import SCHEMAS

SCHEMAS_TOPIC = SCHEMAS.name
"""Topic that stores the schema registry's state."""

__all__ = [
    "DEAD_LETTERS",
    "DEAD_LETTER_SUFFIX",
    "DEDUP_SCOPE",
    "DELIVERIES_MAX",
    "SCHEMAS_TOPIC",
    "TOPIC_CONFIGS",
    "BrokerConfigs",
    "FanoutRecord",
    "Image",
    "PositionKind",
    "SubscriptionRecord",
    "TopicImage",
    "UserRecord",
    "Value",
]
