"""The simple assignor: every partition is read, every member reads."""

import random

from penstock.state.groups.assignors import assign_simple

T, U = b"t", b"u"


def alike(members: int, partitions: int) -> dict[str, set[tuple[bytes, int]]]:
    names = [f"m{number}" for number in range(members)]
    return assign_simple({name: frozenset({T}) for name in names}, {T: partitions})


def test_partitions_are_divided_among_fewer_members() -> None:
    given = alike(3, 7)
    assert sorted(len(slots) for slots in given.values()) == [2, 2, 3]
    assert sorted(slot for slots in given.values() for slot in slots) == [(T, n) for n in range(7)]


def test_more_members_than_partitions_share_them_evenly() -> None:
    given = alike(7, 3)
    assert all(len(slots) == 1 for slots in given.values())
    readers = [sum((T, index) in slots for slots in given.values()) for index in range(3)]
    assert sorted(readers) == [2, 2, 3]


def test_members_get_only_subscribed_topics() -> None:
    given = assign_simple(
        {"a": frozenset({T}), "b": frozenset({U}), "c": frozenset({T, U})}, {T: 2, U: 2}
    )
    assert all(topic == T for topic, _ in given["a"])
    assert all(topic == U for topic, _ in given["b"])
    assert sorted({slot for slots in given.values() for slot in slots}) == [
        (T, 0),
        (T, 1),
        (U, 0),
        (U, 1),
    ]


def test_assignment_is_empty_without_members_or_topics() -> None:
    assert assign_simple({}, {T: 3}) == {}
    assert assign_simple({"a": frozenset()}, {}) == {"a": set()}
    assert assign_simple({"a": frozenset({U})}, {T: 3}) == {"a": set()}


def test_assignment_rules_hold_for_random_groups() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        topics = {bytes([n]): rng.randint(1, 5) for n in range(rng.randint(1, 4))}
        members = {
            f"m{n}": frozenset(rng.sample(sorted(topics), rng.randint(0, len(topics))))
            for n in range(rng.randint(1, 8))
        }
        given = assign_simple(members, topics)
        wanted = frozenset().union(*members.values())
        covered = {slot for slots in given.values() for slot in slots}
        assert covered == {
            (t, n) for t, count in topics.items() for n in range(count) if t in wanted
        }
        for name, slots in given.items():
            assert all(topic in members[name] for topic, _ in slots)
            assert bool(slots) == bool(members[name])
        assert assign_simple(members, topics) == given
