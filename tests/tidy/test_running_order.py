"""The order of files, each once, and which worker gets which: one of three computes."""

from collections import OrderedDict

from tests.running_order import TESTS, Scheduling, in_order


def test_files_are_ordered_by_folder_and_none_is_lost() -> None:
    names = ["unit/a", "chaos/a", "chaos/b", "sim/a", "tidy/a", "clients/a", "property/a", "unit/b"]
    paths = [TESTS / name for name in names]
    found = [str(path.relative_to(TESTS)) for path in in_order(paths)]
    assert found == [
        *("chaos/a", "chaos/b", "clients/a", "sim/a", "property/a", "unit/a", "tidy/a", "unit/b"),
    ]


def test_spark_processes_do_not_start_beside_the_shared_session() -> None:
    names = ["chaos/test_a.py", "spark/test_batch.py", "spark/test_cluster.py", "spark/test_z.py"]
    found = in_order([TESTS / name for name in names])
    assert [path.name for path in found] == [
        *("test_batch.py", "test_z.py", "test_a.py", "test_cluster.py"),
    ]


def test_files_from_elsewhere_keep_their_order() -> None:
    paths = [TESTS.parent / name for name in ("b", "a")]
    assert list(in_order(paths)) == paths


def test_files_with_shared_resources_stay_on_one_worker() -> None:
    scheduling = object.__new__(Scheduling)
    nodeids = [
        "tests/spark/test_batch.py::test_a[x::y]",
        "tests/spark/test_stream.py::test_b",
        "tests/chaos/test_failover.py::test_c",
        "tests/chaos/test_nodes.py::test_d",
        "tests/chaos/test_kill9.py::test_e",
        "tests/unit/spark/source/test_arrow.py::test_f",
    ]
    assert [scheduling._split_scope(nodeid) for nodeid in nodeids] == [
        *("tests/spark", "tests/spark", "tests/chaos", "tests/chaos"),
        *("tests/chaos/test_kill9.py", "tests/unit/spark/source/test_arrow.py"),
    ]


class Worker:
    """A worker as xdist sees it: it gets the numbers of tests."""

    def send_runtest_some(self, indexes: list[int]) -> None:
        self.told = indexes


def handed_out(workers: int, files: list[str]) -> list[tuple[int, str]]:
    """Files by worker, when each finishes its own before its next turn."""
    scheduling = object.__new__(Scheduling)
    nodes = [Worker() for _ in range(workers)]
    tests = [f"tests/{file}.py::test" for file in files]
    scheduling.workqueue = OrderedDict((test.partition("::")[0], {test: False}) for test in tests)
    scheduling.registered_collections = dict.fromkeys(nodes, tests)
    scheduling.assigned_work = {node: {} for node in nodes}
    found: list[tuple[int, str]] = []
    while scheduling.workqueue:
        number = len(found) % workers
        scheduling._assign_work_unit(nodes[number])
        (index,) = nodes[number].told
        found.append((number, files[index]))
    return found


def test_one_worker_of_three_gets_computing_files() -> None:
    files = [f"chaos/{name}" for name in "abcdefg"] + ["sim/a", "unit/b"]
    assert handed_out(3, files) == [
        *((0, "sim/a"), (1, "chaos/a"), (2, "chaos/b")),
        *((0, "unit/b"), (1, "chaos/c"), (2, "chaos/d")),
        *((0, "chaos/e"), (1, "chaos/f"), (2, "chaos/g")),
    ]


def test_one_of_two_workers_gets_computing_files() -> None:
    files = ["spark/a", "spark/b", "sim/a", "sim/b", "sim/c"]
    assert handed_out(2, files) == [
        *((0, "sim/a"), (1, "spark/a"), (0, "sim/b"), (1, "spark/b"), (0, "sim/c")),
    ]
