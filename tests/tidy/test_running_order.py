"""The order of files: each once, those that wait and those that compute in turn."""

from tests.running_order import TESTS, in_turn


def test_waiting_and_computing_files_take_turns_and_none_is_lost() -> None:
    names = ["chaos/a", "chaos/b", "clients/a", "property/a", "sim/a", "tidy/a", "unit/a", "unit/b"]
    paths = [TESTS / name for name in names]
    found = [str(path.relative_to(TESTS)) for path in in_turn(paths)]
    assert found == [
        *("chaos/a", "sim/a", "chaos/b", "property/a", "clients/a", "tidy/a"),
        *("unit/a", "unit/b"),
    ]


def test_files_from_elsewhere_stay_in_their_order() -> None:
    paths = [TESTS.parent / name for name in ("b", "a")]
    assert list(in_turn(paths)) == paths
