"""Reports with headings, text, tables and charts, as one HTML page or as Markdown.

HTML embeds its charts; Markdown has them in separate files next to it.

SVG charts of reports: bars, and lines over time. Needs matplotlib (an extra).
"""

import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .3rem .7rem; text-align: left;
  border-bottom: 1px solid #ddd; vertical-align: top } td.n, th.n { text-align: right }
code, pre { font: 13px ui-monospace, monospace; background: #f4f4f4; padding: .1rem .3rem }
pre { padding: .8rem; overflow: auto } svg { max-width: 100%; height: auto }
"""


@dataclass
class Report:
    """Parts of a report in the order of their addition."""

    title: str
    _parts: list[tuple[str, Any]] = field(default_factory=list)

    def heading(self, text: str) -> None:
        self._parts.append(("heading", text))

    def text(self, text: str) -> None:
        self._parts.append(("text", text))

    def code(self, text: str) -> None:
        self._parts.append(("code", text))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Adds a table; columns with a trailing space in their name are numeric."""
        self._parts.append(("table", (list(columns), [list(map(str, row)) for row in rows])))

    def picture(self, name: str, svg: bytes) -> None:
        self._parts.append(("picture", (name, svg)))

    def write(self, path: str) -> None:
        """Writes HTML or Markdown, by the suffix of the file name."""
        target = Path(path)
        if target.suffix not in (".html", ".md"):
            raise OptionError(f"report file must end in .html or .md, not {target.name!r}")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".html":
            target.write_text(self._html(), encoding="utf-8")
            return
        target.write_text(self._markdown(target), encoding="utf-8")

    def _html(self) -> str:
        out = [
            "<!doctype html><html lang=en><meta charset=utf-8>",
            f"<title>{html.escape(self.title)}</title><style>{_STYLE}</style>",
            f"<h1>{html.escape(self.title)}</h1>",
        ]
        for kind, content in self._parts:
            if kind == "heading":
                out.append(f"<h2>{html.escape(str(content))}</h2>")
            elif kind == "text":
                out.append(f"<p>{html.escape(str(content))}</p>")
            elif kind == "code":
                out.append(f"<pre>{html.escape(str(content))}</pre>")
            elif kind == "table":
                out.append(_html_table(*content))
            else:
                _, svg = content
                text = svg.decode()
                out.append(text[text.index("<svg") :])
        return "\n".join(out) + "\n"

    def _markdown(self, target: Path) -> str:
        out = [f"# {self.title}", ""]
        for kind, content in self._parts:
            if kind == "heading":
                out += [f"## {content}", ""]
            elif kind == "text":
                out += [str(content), ""]
            elif kind == "code":
                out += ["```python", str(content), "```", ""]
            elif kind == "table":
                columns, rows = content
                out += ["| " + " | ".join(c.strip() for c in columns) + " |"]
                out += ["|" + "|".join("--:" if c.endswith(" ") else "---" for c in columns) + "|"]
                out += ["| " + " | ".join(_cell(c) for c in row) + " |" for row in rows]
                out.append("")
            else:
                name, svg = content
                file = target.with_name(f"{target.stem}-{name}.svg")
                file.write_bytes(svg)
                out += [f"![{name}]({file.name})", ""]
        return "\n".join(out)


def _html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    classes = [" class=n" if name.endswith(" ") else "" for name in columns]
    head = "".join(f"<th{k}>{html.escape(c)}" for k, c in zip(classes, columns, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{k}>{html.escape(c)}" for k, c in zip(classes, row, strict=True))
        for row in rows
    )
    return f"<table><tr>{head}{body}</table>"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
