"""The group and txn commands: their grammar, and mistakes answered before anything is sent."""

import io
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.groups.arguments import is_chosen, parse_topics, refuse_members
from penstock.cli.groups.seek import FILE_ROWS_MAX, OffsetMove, parse_rows
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import show_duration, show_time
from penstock.client.admin.groups import DescribedMember, GroupInfo
from penstock.client.metadata import TopicPartition
from tests.unit.cli.test_main import CLOSED_PORT, complaint


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], {}),
        (["a"], {"a": None}),
        (["a,b"], {"a": None, "b": None}),
        (["a:0,2"], {"a": [0, 2]}),
        (["a:0", "a:2", "a:0"], {"a": [0, 2]}),
        (["a:0,2,b"], {"a": [0, 2], "b": None}),
        (["a,b:1,7"], {"a": None, "b": [1, 7]}),
        (["7,8"], {"7": None, "8": None}),
        (["a", "a:1"], {"a": None}),
        (["a:1", "a"], {"a": None}),
    ],
)
def test_topics_and_partitions_are_parsed(
    values: list[str], expected: dict[str, list[int] | None]
) -> None:
    assert parse_topics(values) == expected


@pytest.mark.parametrize("value", ["", "a,", ":1", "a:", "a:x", "a:1,", "a:-1"])
def test_missing_topic_name_is_refused(value: str) -> None:
    with pytest.raises(UserError, match="write orders or orders:0,2"):
        parse_topics([value])


def test_topic_without_partitions_means_all_of_them() -> None:
    chosen = parse_topics(["a", "b:1"])
    assert is_chosen(chosen, "a", 9)
    assert is_chosen(chosen, "b", 1)
    assert not is_chosen(chosen, "b", 0)
    assert not is_chosen(chosen, "c", 0)


@pytest.mark.parametrize(
    "text",
    [
        "orders,0,5\npay,3,7\n",
        "topic,partition,offset\norders,0,5\n\npay,3,7",
        "group,topic,partition,offset\ng,orders,0,5\nother,orders,0,9\ng,pay,3,7\n",
        '"orders", 0 , 5\r\npay,3,7\r\n',
    ],
)
def test_offset_file_is_read(text: str) -> None:
    found = parse_rows(io.StringIO(text), "g", "f.csv")
    assert found == {("orders", 0): 5, ("pay", 3): 7}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders,0\n", "line 1 is not topic,partition,offset"),
        ("orders,0,5\norders,1,x\n", "line 2 is not topic,partition,offset"),
        ("orders,0,-1\n", "line 1 is not topic,partition,offset"),
        ("orders,0,5\norders,0,6\n", r"line 2: orders\[0\] occurs twice"),
        (f"orders,0,{1 << 63}\n", "line 1: offset out of range"),
        ("", "has no offsets of group 'g'"),
        ("other,orders,0,5\n", "has no offsets of group 'g'"),
    ],
)
def test_invalid_offset_file_is_refused_with_the_line(text: str, expected: str) -> None:
    with pytest.raises(UserError, match=f"^f.csv {expected}"):
        parse_rows(io.StringIO(text), "g", "f.csv")


def test_offset_file_size_is_limited() -> None:
    lines = (f"t,{index},0\n" for index in range(FILE_ROWS_MAX + 1))
    with pytest.raises(UserError, match=f"line {FILE_ROWS_MAX + 1}: offset out of range"):
        parse_rows(lines, "g", "f.csv")


def test_move_without_an_origin_has_no_difference() -> None:
    where = TopicPartition("t", 0)
    assert OffsetMove(where, None, 5, 5).difference is None
    assert OffsetMove(where, 7, 5, 5).difference == -2


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "a member (Stable); stop it first"), (2, "2 members (Stable); stop them first")],
)
def test_group_with_members_is_refused_with_the_next_step(count: int, expected: str) -> None:
    members = tuple(
        DescribedMember(f"m{index}", None, "c", "h", (), (), ()) for index in range(count)
    )
    info = GroupInfo("g", "Stable", "classic", "consumer", "range", None, 1, members)
    with pytest.raises(UserError) as caught:
        refuse_members(info, "seek")
    assert str(caught.value) == f"group 'g' has {expected}, then seek again"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["group", "seek", "g", "--to", "foo"], "'foo' is not an offset; try start, end"),
        (["group", "seek", "g", "--to", "foo"], "@2026-11-01, group:OTHER or file:OFFSETS.CSV"),
        (["group", "seek", "g", "--to", "1:2"], "is a range"),
        (["group", "seek", "g", "--to-group", "g"], "name another group"),
        (["group", "seek", "g", "--to-file", "/none/x"], "/none/x: no such file or directory"),
        (["group", "seek", "g", "--to", "group:"], "name another group"),
        (["group", "seek", "g", "--to", "group:g"], "name another group"),
        (["group", "seek", "g", "--to", "file:"], "needs a path"),
        (["group", "seek", "g", "--to", "file:/none/x"], "/none/x: no such file or directory"),
        (["group", "seek", "g", "--to", "start", "-t", "a:b"], "write orders or orders:0,2"),
        (["group", "delete", "g", "-t", ":"], "write orders or orders:0,2"),
        (["txn", "list", "--older", "soon"], "'soon' is not a duration; try 500ms"),
        (["txn", "list", "--hanging", "--state", "ongoing"], "use only one of"),
        (["txn", "list", "-t", "a"], "-t works with --hanging only"),
        (["txn", "abort"], "pass a transactional id, or all of"),
        (["txn", "abort", "-t", "a", "-p", "0"], "pass a transactional id, or all of"),
        (["txn", "abort", "x", "-t", "a"], "pass a transactional id, or all of"),
    ],
)
def test_invalid_argument_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    # Closed port: the mistake is found before any request.
    assert expected in complaint(capsys, *arguments, "-b", CLOSED_PORT, code=1)


def test_binary_offset_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_bytes(b"\xff\xfe\x00")
    line = complaint(
        capsys, "group", "seek", "g", "--to", f"file:{path}", "-b", CLOSED_PORT, code=1
    )
    assert line.endswith("is not a file of topic,partition,offset lines")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["group", "seek", "g"], "--to"),
        (["group", "seek", "g", "--to", "end", "--to-group", "h"], "pass one target"),
        (["group", "list", "--state", "asleep"], "stable"),
        (["txn", "list", "--state", "asleep"], "ongoing"),
        (["group", "describe"], "NAMES"),
    ],
)
def test_invalid_command_line_exits_with_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert expected in complaint(capsys, *arguments, code=2)


@pytest.mark.parametrize(
    "command",
    [
        ["group", "list"],
        ["group", "describe", "g"],
        ["group", "seek", "g", "--to", "start"],
        ["group", "delete", "g"],
        ["txn", "list"],
        ["txn", "list", "--hanging"],
        ["txn", "describe", "x"],
        ["txn", "abort", "x"],
        ["txn", "abort", "-t", "a", "-p", "0", "--start-offset", "1"],
    ],
)
def test_absent_broker_is_one_line(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    line = complaint(capsys, *command, "-b", CLOSED_PORT, code=1)
    assert line.startswith(f"cannot reach {CLOSED_PORT}: connection refused")


@pytest.mark.parametrize("command", [["group", "seek"], ["group", "describe"], ["txn", "abort"]])
def test_help_shows_examples(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert main.run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(f"\n    penstock {' '.join(command)} ") >= 2


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (95_000, "1m35s"),
        (3_600_000, "1h"),
        (3_661_000, "1h1m"),
        (90_000_000, "1d1h"),
    ],
)
def test_durations_show_their_two_largest_units(duration_ms: int, shown: str) -> None:
    assert show_duration(duration_ms) == shown


def test_timestamps_are_shown_in_utc() -> None:
    assert show_time(1_700_000_000_250) == "2023-11-14T22:13:20.250Z"
