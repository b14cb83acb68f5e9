"""Order by key: one head, the others queue behind it in order of arrival."""

from penstock.state.queues.key_order import KeyQueues


def test_only_the_first_of_a_key_is_its_head() -> None:
    queues = KeyQueues()
    assert queues.join(1, 10)
    assert not queues.join(1, 11)
    assert queues.join(2, 12)
    assert len(queues) == 3


def test_next_offset_becomes_head_when_the_head_leaves() -> None:
    queues = KeyQueues()
    for offset in (10, 11, 12):
        queues.join(1, offset)
    assert queues.leave(1, 10) == 11
    assert queues.leave(1, 11) == 12
    assert queues.leave(1, 12) is None
    assert len(queues) == 0
    assert queues.join(1, 13)


def test_followers_are_the_offsets_behind_the_head() -> None:
    queues = KeyQueues()
    assert list(queues.followers(1, 9)) == []
    for offset in (10, 11, 12, 13):
        queues.join(1, offset)
    assert list(queues.followers(1, 2)) == [11, 12]
    assert queues.is_head(1, 10)
    assert not queues.is_head(1, 11)
    assert not queues.is_head(2, 10)
    for offset in (10, 11, 12):
        queues.leave(1, offset)
    assert queues.is_head(1, 13)
    assert list(queues.followers(1, 9)) == []


def test_leave_from_the_middle_keeps_the_head() -> None:
    queues = KeyQueues()
    for offset in (10, 11, 12):
        queues.join(1, offset)
    assert queues.leave(1, 11) is None
    assert queues.leave(1, 10) == 12


def test_leave_ignores_an_offset_that_is_not_queued() -> None:
    queues = KeyQueues()
    queues.join(1, 10)
    assert queues.leave(1, 99) is None
    assert queues.leave(2, 10) is None
    queues.join(1, 11)
    assert queues.leave(1, 99) is None
    assert len(queues) == 2
