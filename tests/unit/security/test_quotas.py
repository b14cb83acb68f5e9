"""Client quotas: the one that applies, the clients that share it, the delays."""

import pytest

from penstock.security import quotas
from penstock.security.quotas import (
    DEFAULT,
    REQUEST_WAIT_S_MAX,
    Entity,
    QuotaKind,
    QuotaMeters,
    quota_of,
    quota_of_ip,
)

ALICE_APP = Entity("alice", "app")
ORDER = [
    ALICE_APP,
    Entity("alice", DEFAULT),
    Entity("alice"),
    Entity(DEFAULT, "app"),
    Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT),
    Entity(None, "app"),
    Entity(None, DEFAULT),
]
"""Kafka's, the most special first."""


def meters(values: dict[Entity, dict[str, float]], windows: int = 11) -> QuotaMeters:
    made = QuotaMeters()
    made.configure(values, windows, 1)
    return made


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_most_special_quota_holds(first: int) -> None:
    values: dict[Entity, dict[str, float]] = {
        entity: {QuotaKind.PRODUCE: float(at)} for at, entity in enumerate(ORDER)
    }
    for entity in ORDER[:first]:
        del values[entity]
    found = quota_of(values, QuotaKind.PRODUCE, "alice", "app")
    assert found is not None
    assert found[0] == first


def test_special_entity_without_this_quota_does_not_hide_the_next() -> None:
    values: dict[Entity, dict[str, float]] = {
        ALICE_APP: {QuotaKind.FETCH: 1.0},
        Entity(DEFAULT): {QuotaKind.PRODUCE: 2.0},
    }
    found = quota_of(values, QuotaKind.PRODUCE, "alice", "app")
    assert found is not None
    assert found[0] == 2.0
    assert quota_of(values, QuotaKind.MUTATION, "alice", "app") is None
    del values[Entity(DEFAULT)]
    assert quota_of(values, QuotaKind.FETCH, "alice", "other") is None


@pytest.mark.parametrize(
    ("entity", "others"),
    [
        (Entity("alice"), [("alice", "other")]),
        (Entity(None, "app"), [("bob", "app")]),
        (ALICE_APP, []),
        (Entity(DEFAULT), [("alice", "other")]),
        (Entity(None, DEFAULT), [("bob", "app")]),
        (Entity(DEFAULT, DEFAULT), []),
    ],
)
def test_quota_is_shared_by_its_matching_clients(
    entity: Entity, others: list[tuple[str, str]]
) -> None:
    held = meters({entity: {QuotaKind.PRODUCE: 100.0}})
    assert held.charge(QuotaKind.PRODUCE, "alice", "app", 300, 0.0) == pytest.approx(2.0)
    for who in (("alice", "other"), ("bob", "app"), ("carol", "third")):
        assert (held.charge(QuotaKind.PRODUCE, *who, 1, 0.0) > 0) == (who in others)


def test_kinds_are_counted_apart() -> None:
    held = meters({Entity("alice"): {QuotaKind.PRODUCE: 10.0, QuotaKind.FETCH: 10.0}})
    assert held.charge(QuotaKind.PRODUCE, "alice", "", 100, 0.0) > 0
    assert held.charge(QuotaKind.FETCH, "alice", "", 10, 0.0) == 0
    assert held.kinds == {QuotaKind.PRODUCE, QuotaKind.FETCH}


def test_request_quota_is_a_percentage_with_a_bounded_wait() -> None:
    held = meters({Entity("alice"): {QuotaKind.REQUEST: 50.0}})
    assert held.charge(QuotaKind.REQUEST, "alice", "", 1.5, 0.0) == pytest.approx(2.0)
    assert held.charge(QuotaKind.REQUEST, "alice", "", 1_000, 0.0) == REQUEST_WAIT_S_MAX


def test_topics_may_be_made_for_all_windows_at_once() -> None:
    held = meters({Entity("alice"): {QuotaKind.MUTATION: 2.0}}, windows=11)
    assert held.charge(QuotaKind.MUTATION, "alice", "", 22, 0.0) == 0
    assert held.owes(QuotaKind.MUTATION, "alice", "", 0.0) == 0
    assert held.charge(QuotaKind.MUTATION, "alice", "", 4, 0.0) == pytest.approx(2.0)
    assert held.owes(QuotaKind.MUTATION, "alice", "", 1.0) == pytest.approx(1.0)
    assert held.owes(QuotaKind.MUTATION, "bob", "", 1.0) == 0


def test_addresses_have_rates_of_their_own_or_the_default_each() -> None:
    values: dict[Entity, dict[str, float]] = {
        Entity(ip="10.0.0.1"): {QuotaKind.CONNECTION: 5.0},
        Entity(ip=DEFAULT): {QuotaKind.CONNECTION: 1.0},
    }
    held = meters(values)
    assert [held.connect("10.0.0.1", 0.0) for _ in range(6)] == [0, 0, 0, 0, 0, pytest.approx(0.2)]
    assert held.connect("10.0.0.2", 0.0) == 0
    assert held.connect("10.0.0.2", 0.0) == pytest.approx(1.0)
    assert held.connect("10.0.0.3", 0.0) == 0
    assert quota_of_ip({}, "10.0.0.1") is None


def test_consumer_is_given_at_most_one_window_at_once() -> None:
    held = meters({Entity("alice"): {QuotaKind.FETCH: 1000.0}})
    assert held.bytes_max(QuotaKind.FETCH, "alice", "") == 1000
    assert held.bytes_max(QuotaKind.FETCH, "bob", "") == float("inf")


def test_names_made_up_by_clients_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "BUCKETS_MAX", 10)
    held = meters({Entity(None, DEFAULT): {QuotaKind.PRODUCE: 1.0}})
    for number in range(100):
        held.charge(QuotaKind.PRODUCE, "alice", "known", 1, number)
        held.charge(QuotaKind.PRODUCE, "alice", f"app-{number}", 1, number)
    assert len(held._buckets) == 10
    assert held.owes(QuotaKind.PRODUCE, "alice", "known", 99.0) == 0
    assert any(share.client_id == "known" for share in held._buckets)


def test_quota_holds_within_a_tenth_over_thirty_seconds_of_virtual_time() -> None:
    """Three clients of one user, with requests of different sizes, share its quota."""
    held = meters({Entity("alice"): {QuotaKind.PRODUCE: 1000.0}})
    free_s = {"a": 0.0, "b": 0.0, "c": 0.0}
    helpings = {"a": 10, "b": 400, "c": 90}
    taken, now_s = 0, 0.0
    while now_s < 30:
        client = min(free_s, key=lambda name: free_s[name])
        now_s = free_s[client]
        taken += helpings[client]
        free_s[client] = now_s + held.charge(
            QuotaKind.PRODUCE, "alice", client, helpings[client], now_s
        )
        free_s[client] += 0.001
    assert taken / now_s == pytest.approx(1000, rel=0.1)
