"""Reports with headings, text, tables and charts, as one HTML page or as Markdown.

HTML embeds its charts; Markdown has them in separate files next to it.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.spark.option_values import OptionError

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
