"""The catalogue of metrics as text, for whoever scrapes it.

Owns the two formats a scraper may ask for: Prometheus text 0.0.4 and OpenMetrics 1.0. Both are a
few lines per metric, so they are written here instead of by a library, straight from
`base.metrics`. A counter's samples end in `_total` whether or not its declared name does.

From one scrape to the next only numbers change, so what stands before them is remembered.
"""

from collections.abc import Iterator
from functools import lru_cache

from penstock.base.fair_turns import Steps
from penstock.base.metrics import Catalogue, Counter, Family, Histogram

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
STEP_CHARS = 400
"""A distribution is many lines."""
NAMING = frozenset({"topic", "group"})
"""Labels whose values not everybody may see."""
NAMES_KEPT = 4_000
"""Samples whose names are remembered, and a tenth as many histograms."""


def render(catalogue: Catalogue, accept: str = "") -> tuple[bytes, str]:
    """The body of a scrape and its content type, in the format that `accept` prefers."""
    strict = is_strict(accept)
    samples = [one for family in _sorted(catalogue) for one in _family(family, strict=strict)]
    return _finished(samples, strict=strict)


def rendering(catalogue: Catalogue, accept: str = "", *, with_names: bool = True) -> Steps[bytes]:
    """The same, step by step: a large node has thousands of lines.

    Without names, what would tell which topics and groups there are is left out.
    """
    strict = is_strict(accept)
    samples: list[str] = []
    for family in _sorted(catalogue):
        yield
        if with_names or NAMING.isdisjoint(family.labels):
            for sample in _family(family, strict=strict):
                samples.append(sample)
                for _ in range(1 + len(sample) // STEP_CHARS):
                    yield
    return _finished(samples, strict=strict)[0]


def type_for(accept: str) -> str:
    return OPENMETRICS if is_strict(accept) else TEXT


def is_strict(accept: str) -> bool:
    """True if the client asks for OpenMetrics."""
    return "application/openmetrics-text" in accept


def _finished(samples: list[str], *, strict: bool) -> tuple[bytes, str]:
    samples += ["# EOF", ""] if strict else [""]
    return "\n".join(samples).encode(), OPENMETRICS if strict else TEXT


def sample_name(family: Family) -> str:
    """The name a query uses: what the documentation shows."""
    if family.kind == "counter":
        return family.name.removesuffix("_total") + "_total"
    return family.name


def _sorted(catalogue: Catalogue) -> list[Family]:
    return [family for _, family in sorted(catalogue.families.items())]


def _family(family: Family, *, strict: bool) -> Iterator[str]:
    """A family's lines; all lines of a distribution come together, so that they agree."""
    assert family.kind in ("counter", "gauge", "histogram"), family.kind
    name = sample_name(family)
    # OpenMetrics describes a counter by its bare name, the older format by its samples' name.
    title = name.removesuffix("_total") if strict and family.kind == "counter" else name
    help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {title} {help_text.replace(chr(34), chr(92) + chr(34)) if strict else help_text}"
    yield f"# TYPE {title} {family.kind}"
    if family.read is not None:
        for values, value in list(family.read()):
            if isinstance(value, Histogram):
                yield _histogram(family, values, value)
            else:
                yield _name(name, family.labels, values) + _number(value)
        return
    for values in sorted(family.children):
        child = family.children.get(values)
        if child is None:
            continue  # Gone while others had their turn.
        if isinstance(child, Counter):
            yield _name(name, family.labels, values) + _number(child.value)
        else:
            yield _histogram(family, values, child)


def _histogram(family: Family, values: tuple[str, ...], histogram: Histogram) -> str:
    names = _bucket_names(family.name, family.labels, values, histogram.bounds)
    lines = []
    seen = 0
    for name, count in zip(names, histogram.counts, strict=True):
        seen += count
        lines.append(name + str(seen))
    lines.append(_name(family.name + "_sum", family.labels, values) + _number(histogram.total))
    lines.append(_name(family.name + "_count", family.labels, values) + str(seen))
    return "\n".join(lines)


@lru_cache(maxsize=NAMES_KEPT // 10)
def _bucket_names(
    name: str, labels: tuple[str, ...], values: tuple[str, ...], bounds: tuple[float, ...]
) -> tuple[str, ...]:
    ends = [*(repr(float(bound)) for bound in bounds), "+Inf"]
    return tuple(f"{name}_bucket{_labels((*labels, 'le'), (*values, end))} " for end in ends)


@lru_cache(maxsize=NAMES_KEPT)
def _name(name: str, labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    """What stands before a sample's number."""
    return f"{name}{_labels(labels, values)} "


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
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
