"""The words of access control, by Kafka's numbers: resources, operations, patterns, permissions."""

import enum

WILDCARD = "*"
ANYBODY = "User:*"
ANONYMOUS = "User:ANONYMOUS"
"""Who has not said who they are."""
NODE_USER = "__node"
"""Whom nodes of the cluster log in as, with its secret. They may do everything, and nobody else
has this name, whatever a token or a certificate says."""


class ResourceType(enum.IntEnum):
    """What a right is about."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(enum.IntEnum):
    """What somebody may do with it."""

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
"""In a filter: whichever."""


class Pattern(enum.IntEnum):
    """How the name in a binding is compared with that of a resource."""

    MATCH = 2
    """Only in filters: every binding that would apply to this name."""
    LITERAL = 3
    PREFIXED = 4


class Permission(enum.IntEnum):
    """What a binding says."""

    DENY = 2
    ALLOW = 3
