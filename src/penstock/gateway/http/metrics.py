"""Renders the metrics catalogue in Prometheus text 0.0.4 or OpenMetrics 1.0.

Both formats are a few lines per metric, so they are written here instead of by a library, straight
from `base.metrics`. A counter's samples end in `_total` whether or not its declared name does.

From one scrape to the next only numbers change, so the text before them is cached.
"""

from collections.abc import Iterator
from functools import lru_cache

from penstock.base.fair_scheduler import Steps
from penstock.base.metrics import Catalogue, Counter, Family, Histogram

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
STEP_CHARS = 400
"""Characters rendered per step; a histogram has many lines."""
RESTRICTED_LABELS = frozenset({"topic", "group"})
"""Labels whose values only clients that may describe the cluster see."""
CACHED_NAMES_MAX = 4_000
"""Maximum cached sample names, and ten times the maximum for histograms."""


def render(catalogue: Catalogue, accept: str = "") -> tuple[bytes, str]:
    """Returns the body of a scrape and its content type, in the format that `accept` prefers."""
    strict = is_strict(accept)
    samples = [one for family in _sorted(catalogue) for one in _family(family, strict=strict)]
    return _finished(samples, strict=strict)


def render_steps(
    catalogue: Catalogue, accept: str = "", *, with_names: bool = True
) -> Steps[bytes]:
    """Renders in steps, because a large node has thousands of lines.

    Without `with_names`, families that would reveal topics and groups are left out.
    """
    strict = is_strict(accept)
    samples: list[str] = []
    for family in _sorted(catalogue):
        yield
        if with_names or RESTRICTED_LABELS.isdisjoint(family.labels):
            for sample in _family(family, strict=strict):
                samples.append(sample)
                for _ in range(1 + len(sample) // STEP_CHARS):
                    yield
    return _finished(samples, strict=strict)[0]


def content_type_for(accept: str) -> str:
    return OPENMETRICS if is_strict(accept) else TEXT


def is_strict(accept: str) -> bool:
    """True if the client asks for OpenMetrics."""
    return "application/openmetrics-text" in accept


def _finished(samples: list[str], *, strict: bool) -> tuple[bytes, str]:
    samples += ["# EOF", ""] if strict else [""]
    return "\n".join(samples).encode(), OPENMETRICS if strict else TEXT


def sample_name(family: Family) -> str:
    """Name as used in queries and shown in the documentation."""
    if family.kind == "counter":
        return family.name.removesuffix("_total") + "_total"
    return family.name


def _sorted(catalogue: Catalogue) -> list[Family]:
    return [family for _, family in sorted(catalogue.families.items())]


def _family(family: Family, *, strict: bool) -> Iterator[str]:
    """Yields a family's lines; all lines of a histogram come together, so that they are
    consistent."""
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
            continue  # Removed while other tasks ran.
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


@lru_cache(maxsize=CACHED_NAMES_MAX // 10)
def _bucket_names(
    name: str, labels: tuple[str, ...], values: tuple[str, ...], bounds: tuple[float, ...]
) -> tuple[str, ...]:
    ends = [*(repr(float(bound)) for bound in bounds), "+Inf"]
    return tuple(f"{name}_bucket{_labels((*labels, 'le'), (*values, end))} " for end in ends)


@lru_cache(maxsize=CACHED_NAMES_MAX)
def _name(name: str, labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Returns the text before a sample's number."""
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
