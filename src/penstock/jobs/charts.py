"""SVG charts of reports: bars, and lines over time. Needs matplotlib (an extra)."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.spark.option_values import OptionError

_COLOURS: Final = ("#2f6f9f", "#d97b29", "#5a9e58", "#9a5aa8", "#8c8c8c")
_LABEL_CHARS: Final = 40


def bars(
    title: str, names: Sequence[str], series: Mapping[str, Sequence[float]], unit: str
) -> bytes:
    """Horizontal bar chart, one group of bars per name."""
    figure, axes = _figure(max(2.0, 0.32 * len(names) * max(1, len(series)) + 1.2))
    height = 0.8 / max(1, len(series))
    for index, (label, values) in enumerate(series.items()):
        places = [row + index * height for row in range(len(names))]
        axes.barh(places, list(values), height, label=label, color=_COLOURS[index % len(_COLOURS)])
    middle = 0.4 - height / 2
    axes.set_yticks([row + middle for row in range(len(names))])
    axes.set_yticklabels([_short(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    if len(series) > 1:
        axes.legend(frameon=False)
    return _svg(figure, axes, title)


def lines(
    title: str, moments: Sequence[str], series: Mapping[str, Sequence[float]], unit: str
) -> bytes:
    """Line chart over time; `moments` are the labels of the x-axis."""
    figure, axes = _figure(3.2)
    for index, (label, values) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        axes.plot(range(len(moments)), list(values), label=_short(label), color=colour, marker=".")
    step = max(1, len(moments) // 8)
    shown = range(0, len(moments), step)
    axes.set_xticks(list(shown))
    axes.set_xticklabels([moments[at] for at in shown], rotation=20, ha="right")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return _svg(figure, axes, title)


def _figure(height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise OptionError("charts need matplotlib: pip install 'penstock-mq[pipelines]'") from None
    figure = Figure(figsize=(8, min(height, 20)), layout="constrained")
    return figure, figure.add_subplot()


def _svg(figure: Any, axes: Any, title: str) -> bytes:
    axes.set_title(title, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    written = io.BytesIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def _short(text: str) -> str:
    # An unescaped dollar sign would start a formula.
    plain = " ".join(text.replace("$", "\\$").split())
    return plain if len(plain) <= _LABEL_CHARS else plain[: _LABEL_CHARS - 1] + "…"
