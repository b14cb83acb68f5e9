"""Reports escape their content."""

from pathlib import Path

import pytest

from penstock.jobs.reports import Report, bars, lines
from penstock.spark.option_values import OptionError


def made() -> Report:
    report = Report("Letters <of> orders")
    report.heading("Kinds")
    report.text("<script>alert(1)</script>")
    report.table(["count ", "error"], [(3, "a|b <b>")])
    report.picture("bars", b'<?xml version="1.0"?><svg xmlns="x"></svg>')
    report.code("x = 1")
    return report


def test_html_report_is_one_escaped_page(tmp_path: Path) -> None:
    made().write(str(tmp_path / "sub" / "report.html"))
    text = (tmp_path / "sub" / "report.html").read_text()
    assert "<script" not in text
    assert "Letters &lt;of&gt; orders" in text
    assert '<svg xmlns="x"></svg>' in text
    assert "<?xml" not in text
    assert "<td class=n>3" in text


def test_markdown_report_has_charts_in_files(tmp_path: Path) -> None:
    made().write(str(tmp_path / "report.md"))
    text = (tmp_path / "report.md").read_text()
    assert "| 3 | a\\|b <b> |" in text
    assert "![bars](report-bars.svg)" in text
    assert (tmp_path / "report-bars.svg").read_bytes().startswith(b"<?xml")


def test_unknown_report_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"not 'report\.pdf'"):
        made().write(str(tmp_path / "report.pdf"))


def test_chart_labels_are_escaped() -> None:
    names = ["a $x_1$ formula?", "x" * 100, "<b>&"]
    drawn = bars("Bars", names, {"now": [1, 2, 3], "then": [3, 2, 1]}, "records")
    assert b"<svg" in drawn
    assert b"<b>" not in drawn


def test_line_chart_is_svg() -> None:
    hours = [f"{n}:00" for n in range(24)]
    assert b"<svg" in lines("Hours", hours, {"errors": list(range(24))}, "dead letters")
