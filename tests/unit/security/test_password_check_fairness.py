"""Fair scheduling of password checks."""

from penstock.security.password_check_fairness import (
    PATIENCE_S,
    REST_FACTOR,
    PasswordCheckQueue,
    place_of,
)

HERE, THERE, ELSEWHERE = "192.0.2.1", "192.0.2.2", "192.0.2.3"
CHECK_S = 0.004


def turns(at_once: int = 1, waiting_max: int = 1_000) -> PasswordCheckQueue[str]:
    return PasswordCheckQueue(at_once, waiting_max)


def called(queue: PasswordCheckQueue[str], count: int, now_s: float = 0.0) -> list[str]:
    """Waiters in the order in which they are called, each with the right password."""
    found = []
    for _ in range(count):
        turn = queue.call(now_s)
        assert turn is not None
        place, waiter = turn
        found.append(waiter)
        queue.finish(place, now_s)
    return found


def test_address_with_many_waits_behind_itself() -> None:
    queue = turns()
    for number in range(100):
        assert queue.join(THERE, "admin", f"outsider {number}")
    assert queue.join(HERE, "bob", "bob")
    assert queue.join(ELSEWHERE, "ann", "ann")
    assert called(queue, 4) == ["outsider 0", "bob", "ann", "outsider 1"]


def test_names_at_one_address_take_turns() -> None:
    queue = turns()
    for number in range(100):
        assert queue.join(HERE, "admin", f"outsider {number}")
    assert queue.join(HERE, "bob", "bob")
    assert queue.join(HERE, "bob", "bob again")
    assert called(queue, 4) == ["outsider 0", "bob", "outsider 1", "bob again"]


def test_address_has_one_turn_at_a_time() -> None:
    queue = turns(at_once=2)
    queue.join(THERE, "admin", "outsider")
    queue.join(THERE, "root", "another")
    assert queue.call(0.0) == (THERE, "outsider")
    assert queue.call(0.0) is None
    queue.join(HERE, "bob", "bob")
    assert queue.call(0.0) == (HERE, "bob")
    queue.join(ELSEWHERE, "ann", "ann")
    assert queue.call(0.0) is None, "two have their turn"
    queue.finish(HERE, 0.0)
    assert queue.call(0.0) == (ELSEWHERE, "ann")


def test_wrong_password_is_followed_by_a_rest_of_its_address_alone() -> None:
    queue = turns()
    queue.join(THERE, "admin", "outsider")
    queue.join(THERE, "admin", "another")
    assert queue.call(0.0) == (THERE, "outsider")
    assert queue.rested_at() is None, "a turn has to end first"
    queue.finish(THERE, CHECK_S, wasted_s=CHECK_S)
    rested_at = CHECK_S + REST_FACTOR * CHECK_S
    assert queue.rested_at() == rested_at
    assert queue.call(rested_at - 0.001) is None
    queue.join(HERE, "bob", "bob")
    assert queue.call(CHECK_S) == (HERE, "bob")
    queue.finish(HERE, CHECK_S)
    assert queue.call(rested_at) == (THERE, "another")
    queue.finish(THERE, rested_at)
    assert queue.rested_at() is None


def test_legitimate_users_at_an_attacking_address_wait_little_longer() -> None:
    """Legitimate clients may share an address with outsiders."""
    queue, now_s, count = turns(), 0.0, 400
    for number in range(count):
        assert queue.join(HERE, f"name {number}", f"outsider {number}")
    queue.join(HERE, "bob", "bob")
    while (turn := queue.call(now_s)) != (HERE, "bob"):
        if turn is None:
            rested_at = queue.rested_at()
            assert rested_at is not None
            assert rested_at > now_s
            now_s = rested_at
        else:
            now_s += CHECK_S
            queue.finish(HERE, now_s, wasted_s=CHECK_S)
    # 1/400 + 1/399 + ... of the patience, until a whole rest is shorter than that.
    assert now_s <= count * CHECK_S + 3 * PATIENCE_S


def test_rest_is_over_when_a_check_took_too_long_for_other_reasons() -> None:
    queue = turns()
    queue.join(HERE, "bob", "typing error")
    queue.call(0.0)
    queue.finish(HERE, 100.0, wasted_s=100.0)
    queue.join(HERE, "bob", "bob")
    assert queue.rested_at() == 100.0 + PATIENCE_S


def test_request_that_left_is_not_called() -> None:
    queue = turns()
    queue.join(THERE, "admin", "outsider")
    queue.join(HERE, "bob", "bob")
    queue.leave(THERE, "admin", "outsider")
    queue.leave(THERE, "admin", "outsider")
    assert queue.waiting == 1
    assert called(queue, 1) == ["bob"]
    queue.leave(HERE, "bob", "bob")
    assert queue.waiting == 0
    assert queue.call(0.0) is None


def test_queue_admits_another_name_and_address_when_full() -> None:
    queue = turns(waiting_max=300)
    of_one_name = 0
    while queue.join(THERE, "admin", f"outsider {of_one_name}"):
        of_one_name += 1
    assert of_one_name == 100
    of_one_address = of_one_name
    while queue.join(THERE, f"name {of_one_address}", f"outsider {of_one_address}"):
        of_one_address += 1
    assert of_one_address == 150
    crowded = 0
    while queue.join(f"203.0.113.{crowded}", "admin", "one"):
        for number in range(300):
            queue.join(f"203.0.113.{crowded}", f"name {number}", "more")
        crowded += 1
    assert crowded >= 7
    assert queue.waiting <= 300


def test_host_with_many_addresses_is_in_one_place() -> None:
    assert place_of("2001:db8:1:2::5") == place_of("2001:db8:1:2:ffff::6")
    assert place_of("2001:db8:1:2::5") != place_of("2001:db8:1:3::5")
    assert place_of("fe80::1%eth0") == place_of("fe80::2%eth0")
    assert place_of("::ffff:192.0.2.1") == place_of("192.0.2.1") != place_of("192.0.2.2")
    assert place_of("unknown") == "unknown"
