"""The catalogue of metrics as text, for whoever scrapes it.

Owns the two formats a scraper may ask for: Prometheus text 0.0.4 and OpenMetrics 1.0. Both are a
few lines per metric, so they are written here instead of by a library, straight from
`base.metrics`. A counter's samples end in `_total` whether or not its declared name does.
"""

import asyncio
from collections.abc import Iterable, Iterator

from penstock.base.metrics import Catalogue, Counter, Family, Histogram

TEXT = "text/plain; version=0.0.4; charset=utf-8"
TURN_SECONDS = 0.001
"""After so long, whoever waits for the loop has a turn."""
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def render(catalogue: Catalogue, accept: str = "") -> tuple[bytes, str]:
    """The body of a scrape and its content type, in the format that `accept` prefers."""
    strict = "application/openmetrics-text" in accept
    lines = [line for family in _sorted(catalogue) for line in _family(family, strict=strict)]
    return _finished(lines, strict=strict)


async def render_in_turns(catalogue: Catalogue, accept: str = "") -> tuple[bytes, str]:
    """The same, letting others in between: a large node has thousands of lines."""
    now = asyncio.get_running_loop().time
    strict = "application/openmetrics-text" in accept
    lines: list[str] = []
    began = now()
    for family in _sorted(catalogue):
        lines += _family(family, strict=strict)
        if now() - began > TURN_SECONDS:
            await asyncio.sleep(0)
            began = now()
    return _finished(lines, strict=strict)


def _finished(lines: list[str], *, strict: bool) -> tuple[bytes, str]:
    lines += ["# EOF", ""] if strict else [""]
    return "\n".join(lines).encode(), OPENMETRICS if strict else TEXT


def sample_name(family: Family) -> str:
    """The name a query uses: what the documentation shows."""
    if family.kind == "counter":
        return family.name.removesuffix("_total") + "_total"
    return family.name


def _sorted(catalogue: Catalogue) -> list[Family]:
    return [family for _, family in sorted(catalogue.families.items())]


def _family(family: Family, *, strict: bool) -> Iterator[str]:
    assert family.kind in ("counter", "gauge", "histogram"), family.kind
    name = sample_name(family)
    # OpenMetrics describes a counter by its bare name, the older format by its samples' name.
    title = name.removesuffix("_total") if strict and family.kind == "counter" else name
    help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {title} {help_text.replace(chr(34), chr(92) + chr(34)) if strict else help_text}"
    yield f"# TYPE {title} {family.kind}"
    if family.read is not None:
        for values, value in family.read():
            if isinstance(value, Histogram):
                yield from _histogram(family, values, value)
            else:
                yield f"{name}{_labels(family.labels, values)} {_number(value)}"
        return
    for values, child in sorted(family.children.items(), key=lambda item: item[0]):
        if isinstance(child, Counter):
            yield f"{name}{_labels(family.labels, values)} {_number(child.value)}"
        else:
            yield from _histogram(family, values, child)


def _histogram(family: Family, values: tuple[str, ...], histogram: Histogram) -> Iterator[str]:
    names = (*family.labels, "le")
    seen = 0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        seen += count
        yield f"{family.name}_bucket{_labels(names, (*values, repr(float(bound))))} {seen}"
    seen += histogram.counts[-1]
    plain = _labels(family.labels, values)
    yield f"{family.name}_bucket{_labels(names, (*values, '+Inf'))} {seen}"
    yield f"{family.name}_sum{plain} {_number(histogram.total)}"
    yield f"{family.name}_count{plain} {seen}"


def _labels(names: Iterable[str], values: Iterable[str]) -> str:
    pairs = [f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value != value:  # NaN, the only number that differs from itself
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
