"""Charts are valid SVG for arbitrary labels."""

from penstock.jobs.charts import bars, lines


def test_chart_labels_are_escaped() -> None:
    names = ["a $x_1$ formula?", "x" * 100, "<b>&"]
    drawn = bars("Bars", names, {"now": [1, 2, 3], "then": [3, 2, 1]}, "records")
    assert b"<svg" in drawn
    assert b"<b>" not in drawn


def test_line_chart_is_svg() -> None:
    hours = [f"{n}:00" for n in range(24)]
    assert b"<svg" in lines("Hours", hours, {"errors": list(range(24))}, "dead letters")
