"""Access control by Kafka's numbers: resources, operations, patterns, permissions."""

import enum

WILDCARD = "*"
ANY_PRINCIPAL = "User:*"
ANONYMOUS = "User:ANONYMOUS"
"""Principal of a client that has not authenticated."""
NODE_USER = "__node"
"""User name with which nodes of the cluster authenticate, using its secret. Nodes may do
everything, and no client gets this name, whatever its token or certificate says."""


class ResourceType(enum.IntEnum):
    """Type of the resource that a permission applies to."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(enum.IntEnum):
    """Operation on a resource."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


ALL_OPERATIONS = 2
ANY = 1
"""Matches everything in a filter."""


class Pattern(enum.IntEnum):
    """Comparison of a binding's name with a resource's name."""

    MATCH = 2
    """Only in filters: every binding that would apply to this name."""
    LITERAL = 3
    PREFIXED = 4


class Permission(enum.IntEnum):
    """Effect of a binding."""

    DENY = 2
    ALLOW = 3
