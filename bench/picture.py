"""Chart of a run, docs/benchmarks.svg: each figure's ratio to Kafka, with its target."""

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

from bench.report import Results, Row, number, rows

GOOD, BAD, PLAIN, INK = "#2f9e6e", "#d1495b", "#5b7db1", "#333333"
RATIO_SHOWN_MAX = 3.0


def draw(results: Results, path: Path) -> None:
    """Draws the chart. Bars left of 1 mean less than Kafka; a tick marks a relative target."""
    # Without fixed ids and date, every run would change the file even with equal figures.
    mpl.rcParams.update({"svg.hashsalt": "penstock", "font.size": 9, "svg.fonttype": "none"})
    compared = [row for row in rows(results) if row.ratio is not None][::-1]
    figure, axes = plt.subplots(figsize=(11, 0.29 * len(compared) + 1.2))
    for position, row in enumerate(compared):
        _draw_row(axes, position, row)
    axes.axvline(1.0, color=INK, linewidth=1)
    axes.set_yticks(range(len(compared)), [row.figure.title for row in compared])
    axes.set_xlim(0, RATIO_SHOWN_MAX)
    axes.set_xlabel("Penstock relative to Kafka (1 = the same; black tick = target)")
    axes.set_title("Penstock beside Kafka, same run, same clients", loc="left", fontsize=11)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def _draw_row(axes: plt.Axes, position: int, row: Row) -> None:
    assert row.ratio is not None
    colour = {True: GOOD, False: BAD, None: PLAIN}[row.passes]
    shown = min(row.ratio, RATIO_SHOWN_MAX)
    axes.barh(position, shown, color=colour, height=0.62)
    if row.figure.rule in ("ratio_max", "ratio_min"):
        axes.plot([row.figure.target] * 2, [position - 0.4, position + 0.4], color="black")
    label = f"{number(row.ratio)}x  ({number(row.own)} / {number(row.peer)} {row.figure.unit})"
    # A separate column, where no bar or tick crosses the figures.
    beside = axes.get_yaxis_transform()
    axes.text(1.02, position, label, va="center", color=INK, fontsize=8, transform=beside)
