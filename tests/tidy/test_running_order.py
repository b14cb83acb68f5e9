"""The order of files: each once, those that wait and those that compute in turn."""

from tests.running_order import TESTS, Scheduling, in_turn


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


def test_what_shares_something_dear_stays_together_and_all_else_by_file() -> None:
    scheduling = object.__new__(Scheduling)
    nodeids = [
        "tests/spark/test_batch.py::test_a[x::y]",
        "tests/spark/test_stream.py::test_b",
        "tests/chaos/test_failover.py::test_c",
        "tests/chaos/test_nodes.py::test_d",
        "tests/chaos/test_kill9.py::test_e",
        "tests/unit/spark/test_arrow.py::test_f",
    ]
    assert [scheduling._split_scope(nodeid) for nodeid in nodeids] == [
        *("spark", "spark", "chaos of one cluster", "chaos of one cluster"),
        *("tests/chaos/test_kill9.py", "tests/unit/spark/test_arrow.py"),
    ]
