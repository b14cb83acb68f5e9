"""Where quotas are kept: every entity has its own place, whatever its names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.access.quota_entities import entity_at, path_of
from penstock.security.quotas import DEFAULT, Entity

NAMES = st.one_of(st.none(), st.just(DEFAULT), st.text(min_size=1, max_size=20))


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (Entity("alice"), "user/alice"),
        (Entity(DEFAULT, "a/b"), "user/<default>/client-id/a%2Fb"),
        (Entity(ip="::1"), "ip/%3A%3A1"),
        (Entity("<default>"), "user/%3Cdefault%3E"),
    ],
)
def test_a_path_names_its_entity(entity: Entity, path: str) -> None:
    assert path_of(entity) == path
    assert entity_at(path) == entity


@given(st.builds(Entity, NAMES, NAMES, NAMES).filter(lambda entity: entity != Entity()))
def test_every_entity_comes_back_as_it_was(entity: Entity) -> None:
    assert entity_at(path_of(entity)) == entity
