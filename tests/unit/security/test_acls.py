"""Access control: Kafka's rules, and the same decisions as a slow reference implementation."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from penstock.security.acl_types import (
    ALL_OPERATIONS,
    ANY,
    ANY_PRINCIPAL,
    Operation,
    Pattern,
    Permission,
    ResourceType,
)
from penstock.security.acls import AccessControl, AclEntry, Filter, Resource

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ALLOW, DENY = Permission.ALLOW, Permission.DENY
BOB = "User:bob"


def allow(operation: int, principal: str = BOB, host: str = "*") -> AclEntry:
    return AclEntry(principal, host, operation, ALLOW)


def deny(operation: int, principal: str = BOB, host: str = "*") -> AclEntry:
    return AclEntry(principal, host, operation, DENY)


def rules(lists: Mapping[Resource, tuple[AclEntry, ...]], **more: object) -> AccessControl:
    return AccessControl(lists, **more)  # type: ignore[arg-type]


def test_operation_without_a_binding_is_denied() -> None:
    found = rules({Resource(TOPIC, "orders"): (allow(READ),)})
    assert found.allows(BOB, READ, TOPIC, "orders")
    assert not found.allows(BOB, WRITE, TOPIC, "orders")
    assert not found.allows("User:eve", READ, TOPIC, "orders")
    assert not found.allows(BOB, READ, TOPIC, "others")
    assert not found.allows(BOB, READ, GROUP, "orders")


def test_prefix_covers_every_name_that_begins_with_it() -> None:
    found = rules({Resource(TOPIC, "team-", Pattern.PREFIXED): (allow(WRITE),)})
    assert found.allows(BOB, WRITE, TOPIC, "team-")
    assert found.allows(BOB, WRITE, TOPIC, "team-orders")
    assert not found.allows(BOB, WRITE, TOPIC, "tea")


def test_wildcard_covers_every_name_and_a_literal_star_is_not_a_prefix() -> None:
    found = rules({Resource(TOPIC, "*"): (allow(WRITE),)})
    assert found.allows(BOB, WRITE, TOPIC, "anything")
    found = rules({Resource(TOPIC, "*", Pattern.PREFIXED): (allow(WRITE),)})
    assert not found.allows(BOB, WRITE, TOPIC, "anything")


def test_denial_overrides_every_permission() -> None:
    found = rules(
        {
            Resource(TOPIC, "*"): (allow(ALL_OPERATIONS), allow(READ)),
            Resource(TOPIC, "secret", Pattern.PREFIXED): (deny(READ, ANY_PRINCIPAL),),
        }
    )
    assert found.allows(BOB, READ, TOPIC, "orders")
    assert not found.allows(BOB, READ, TOPIC, "secret-plans")
    assert found.allows(BOB, WRITE, TOPIC, "secret-plans")


def test_reading_includes_describing_and_denying_to_read_does_not() -> None:
    found = rules({Resource(TOPIC, "a"): (allow(READ),), Resource(TOPIC, "b"): (deny(READ),)})
    assert found.allows(BOB, DESCRIBE, TOPIC, "a")
    assert not found.allows(BOB, DESCRIBE, TOPIC, "b")
    both = rules({Resource(TOPIC, "b"): (deny(READ), allow(DESCRIBE))})
    assert both.allows(BOB, DESCRIBE, TOPIC, "b")


def test_host_limits_a_binding() -> None:
    found = rules({Resource(TOPIC, "a"): (allow(READ, host="10.0.0.1"),)})
    assert found.allows(BOB, READ, TOPIC, "a", "10.0.0.1")
    assert not found.allows(BOB, READ, TOPIC, "a", "10.0.0.2")


def test_super_users_may_do_everything_even_if_denied() -> None:
    found = rules(
        {Resource(TOPIC, "a"): (deny(ALL_OPERATIONS, ANY_PRINCIPAL),)}, super_users=["User:admin"]
    )
    assert found.allows("User:admin", READ, TOPIC, "a")
    assert not found.allows(BOB, READ, TOPIC, "a")


def test_unlisted_resources_are_open_only_where_that_is_configured() -> None:
    lists = {Resource(TOPIC, "a"): (allow(READ),)}
    assert not rules(lists).allows(BOB, READ, TOPIC, "b")
    assert rules(lists, allows_unlisted=True).allows(BOB, READ, TOPIC, "b")
    assert not rules(lists, allows_unlisted=True).allows(BOB, WRITE, TOPIC, "a")


def test_some_name_is_allowed_unless_everything_that_is_allowed_is_denied() -> None:
    found = rules({Resource(TOPIC, "a"): (allow(WRITE),)})
    assert found.allows_some(BOB, WRITE, TOPIC)
    assert not found.allows_some(BOB, READ, TOPIC)
    found = rules({Resource(TOPIC, "a"): (allow(WRITE), deny(WRITE))})
    assert not found.allows_some(BOB, WRITE, TOPIC)
    found = rules({Resource(TOPIC, "*"): (allow(WRITE),), Resource(TOPIC, "a"): (deny(WRITE),)})
    assert found.allows_some(BOB, WRITE, TOPIC)
    found = rules(
        {
            Resource(TOPIC, "team-", Pattern.PREFIXED): (allow(WRITE),),
            Resource(TOPIC, "te", Pattern.PREFIXED): (deny(WRITE),),
        }
    )
    assert not found.allows_some(BOB, WRITE, TOPIC)


def test_filter_that_matches_finds_every_binding_that_applies_to_a_name() -> None:
    match = Filter(TOPIC, "orders", Pattern.MATCH)
    assert match.takes_resource(Resource(TOPIC, "orders"))
    assert match.takes_resource(Resource(TOPIC, "*"))
    assert match.takes_resource(Resource(TOPIC, "ord", Pattern.PREFIXED))
    assert not match.takes_resource(Resource(TOPIC, "order"))
    exact = Filter(TOPIC, "orders", Pattern.LITERAL)
    assert not exact.takes_resource(Resource(TOPIC, "*"))
    assert Filter().takes_resource(Resource(GROUP, "x", Pattern.PREFIXED))
    assert Filter(principal=BOB).takes(allow(READ))
    assert not Filter(principal="User:eve").takes(allow(READ))


names = st.sampled_from(["a", "ab", "abc", "b", "*"])
entries = st.builds(
    AclEntry,
    st.sampled_from([BOB, "User:eve", ANY_PRINCIPAL]),
    st.sampled_from(["*", "h"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL_OPERATIONS]),
    st.sampled_from([ALLOW, DENY]),
)
resources = st.builds(
    Resource, st.just(TOPIC), names, st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED])
)


@given(
    st.dictionaries(resources, st.lists(entries, max_size=3).map(tuple), max_size=5),
    names,
    st.sampled_from([READ, WRITE, DESCRIBE]),
    st.sampled_from(["h", "i"]),
)
def test_index_agrees_with_reading_every_binding(
    lists: dict[Resource, tuple[AclEntry, ...]], name: str, operation: Operation, host: str
) -> None:
    applying = [
        entry
        for resource, found in lists.items()
        if resource.covers(name)
        for entry in found
        if entry.principal in (BOB, ANY_PRINCIPAL) and entry.host in ("*", host)
    ]
    enough = {operation, ALL_OPERATIONS} | ({READ, WRITE} if operation is DESCRIBE else set())
    is_denied = any(
        entry.permission == DENY and entry.operation in (operation, ALL_OPERATIONS)
        for entry in applying
    )
    is_allowed = any(entry.permission == ALLOW and entry.operation in enough for entry in applying)
    answer = rules(lists).allows(BOB, operation, TOPIC, name, host)
    assert answer == (is_allowed and not is_denied)


def test_any_has_its_kafka_number() -> None:
    assert ANY == 1
    assert ALL_OPERATIONS == 2
