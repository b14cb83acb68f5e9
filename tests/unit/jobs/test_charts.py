"""Pictures: they are SVG, whatever the names in them are."""

from penstock.jobs.charts import bars, lines


def test_names_are_drawn_as_they_are() -> None:
    names = ["a $x_1$ formula?", "x" * 100, "<b>&"]
    drawn = bars("Bars", names, {"now": [1, 2, 3], "then": [3, 2, 1]}, "records")
    assert b"<svg" in drawn
    assert b"<b>" not in drawn


def test_lines_over_time() -> None:
    hours = [f"{n}:00" for n in range(24)]
    assert b"<svg" in lines("Hours", hours, {"errors": list(range(24))}, "letters")
