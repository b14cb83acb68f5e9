"""`StoreModel` where the contract of the stores does not reach: history, restarts, leases."""

import pytest

from penstock.base.ports import Delete, Put, StoreEntry
from penstock.base.store_model import StoreModel


def test_history_is_bounded_and_keeps_the_newest() -> None:
    space = StoreModel(history_max=10)
    for i in range(100):
        space.apply([Put(f"k{i % 3}", b"%d" % i)])
    assert 10 <= space.revision - space.compacted < 20
    for revision in range(space.compacted + 1, 101):
        assert [c.value for c in space.changes_at(revision, "")] == [b"%d" % (revision - 1)]


def test_restart_goes_on_after_the_revision_it_is_given() -> None:
    space = StoreModel()
    space.grant(5, 10.0, 0.0)
    space.restore(StoreEntry("b", b"", 3, 5))
    space.restore(StoreEntry("a", b"", 7))
    space.restart(9)
    assert (space.revision, space.compacted) == (9, 9)
    assert [entry.key for entry in space.range("")] == ["a", "b"]
    assert space.apply([Put("c", b"")]) == 10
    assert space.keys_of(5) == [Delete("b")]


def test_lease_past_its_deadline_cannot_be_renewed_even_before_it_is_ended() -> None:
    space = StoreModel()
    space.grant(1, 10.0, 0.0)
    assert space.renew(1, 9.0)
    assert space.next_deadline_s() == 19.0
    assert space.expired(18.9) == []
    assert space.expired(19.0) == [1]
    assert not space.renew(1, 19.0)
    assert not space.renew(2, 0.0)


def test_key_is_changed_at_most_once_in_a_transaction() -> None:
    with pytest.raises(AssertionError, match="once"):
        StoreModel().plan([], [Put("a", b"1"), Delete("a")])
