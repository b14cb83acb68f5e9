"""Report of `bench.queues.run`: a table and a chart in docs/benchmarks-queues.md."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

from bench.queues.cycles import CONSUMERS, Cycles

Taken = Mapping[str, Mapping[int, Sequence[Cycles]]]
"""Results of each round, by side and number of consumers."""

PAGE = Path("docs/benchmarks-queues.md")
OURS, OTHERS, INK = "#2f9e6e", ("#5b7db1", "#b08968", "#8a6fae"), "#333333"
GROUPS = (("share group", "quorum", "jetstream"), ("sqs",))
"""Groups of sides in the chart, by words in their names."""


def rate(found: Sequence[Cycles]) -> float:
    return statistics.median(one.rate for one in found) if found else 0.0


def p99_ms(found: Sequence[Cycles]) -> float | None:
    known = [one.p99_ms for one in found if one.p99_ms is not None]
    return statistics.median(known) if known else None


def cell(found: Sequence[Cycles]) -> str:
    if not found:
        return ""
    late = p99_ms(found)
    return f"{rate(found):,.0f}" + (f" ({late:,.1f} ms)" if late is not None else "")


def table(taken: Taken) -> str:
    lines = [
        "| Side | " + " | ".join(f"{n} consumer{'s' * (n > 1)}" for n in CONSUMERS) + " |",
        "|---|" + "---:|" * len(CONSUMERS),
    ]
    for name, rows in taken.items():
        cells = " | ".join(cell(rows.get(n, [])) for n in CONSUMERS)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def put(mark: str, body: str, page: Path = PAGE) -> None:
    """Replaces the text between the page's comments `<!-- mark -->` and `<!-- /mark -->`."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, found, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    assert found, f"{page} has no {begin}"
    page.write_text(f"{before}{begin}\n\n{body}\n\n{end}{after}")


def write(taken: Taken, rounds: int) -> None:
    """Writes the table and the chart of a run."""
    shown = f"Medians of {rounds} rounds" if rounds > 1 else "One round"
    body = f"{shown}: cycles a second, and the p99 from publish to receipt at a low rate."
    put("cycles", f"{body}\n\n{table(taken)}")
    draw(taken, PAGE.with_suffix(".svg"))


def draw(taken: Taken, path: Path) -> None:
    # Without fixed ids and date, every run would change the file even with equal figures.
    mpl.rcParams.update({"svg.hashsalt": "penstock", "font.size": 9, "svg.fonttype": "none"})
    figure, all_axes = plt.subplots(1, len(GROUPS), figsize=(11, 3.6))
    for axes, words in zip(all_axes, GROUPS, strict=True):
        _draw_group(axes, {n: r for n, r in taken.items() if any(word in n for word in words)})
    all_axes[0].set_ylabel("publish, receive, acknowledge: messages a second")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def _draw_group(axes: plt.Axes, sides: Taken) -> None:
    width = 0.8 / max(1, len(sides))
    others = iter(OTHERS)
    for index, (name, rows) in enumerate(sides.items()):
        colour = OURS if name.startswith("penstock") else next(others)
        places = [at + index * width for at in range(len(CONSUMERS))]
        heights = [rate(rows.get(n, [])) for n in CONSUMERS]
        axes.bar(places, heights, width * 0.94, color=colour, label=name)
        for place, height in zip(places, heights, strict=True):
            axes.text(place, height, f"{height:,.0f}", ha="center", va="bottom", fontsize=7)
    middle = (len(sides) - 1) * width / 2
    names = [f"{n} consumer{'s' * (n > 1)}" for n in CONSUMERS]
    axes.set_xticks([at + middle for at in range(len(CONSUMERS))], names)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=INK)
    axes.legend(frameon=False, fontsize=8)
