"""Lines by key: one head, the others behind it in the order of coming."""

from penstock.state.queues.key_order import Lines


def test_only_the_first_of_a_key_is_its_head() -> None:
    lines = Lines()
    assert lines.join(1, 10)
    assert not lines.join(1, 11)
    assert lines.join(2, 12)
    assert len(lines) == 3


def test_the_next_steps_up_when_the_head_leaves() -> None:
    lines = Lines()
    for offset in (10, 11, 12):
        lines.join(1, offset)
    assert lines.leave(1, 10) == 11
    assert lines.leave(1, 11) == 12
    assert lines.leave(1, 12) is None
    assert len(lines) == 0
    assert lines.join(1, 13)


def test_a_line_tells_who_is_behind_its_head() -> None:
    lines = Lines()
    assert list(lines.followers(1, 9)) == []
    for offset in (10, 11, 12, 13):
        lines.join(1, offset)
    assert list(lines.followers(1, 2)) == [11, 12]
    assert lines.is_head(1, 10)
    assert not lines.is_head(1, 11)
    assert not lines.is_head(2, 10)
    for offset in (10, 11, 12):
        lines.leave(1, offset)
    assert lines.is_head(1, 13)
    assert list(lines.followers(1, 9)) == []


def test_one_that_leaves_from_the_middle_changes_no_head() -> None:
    lines = Lines()
    for offset in (10, 11, 12):
        lines.join(1, offset)
    assert lines.leave(1, 11) is None
    assert lines.leave(1, 10) == 12


def test_who_is_not_in_a_line_cannot_leave_it() -> None:
    lines = Lines()
    lines.join(1, 10)
    assert lines.leave(1, 99) is None
    assert lines.leave(2, 10) is None
    lines.join(1, 11)
    assert lines.leave(1, 99) is None
    assert len(lines) == 2
