"""Narrows offset ranges by the filters that Spark pushes down.

Narrowed ranges fully apply filters on topic, partition and offset; Spark does not check those
again. A lower bound on the timestamp only moves the start: records with older timestamps may follow
newer ones, so Spark checks those rows again. An upper bound on the timestamp is not used.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from penstock.spark.range_planning import Range

_EQUAL = (EqualTo, EqualNullSafe)
_EXACT = ("topic", "partition", "offset")


@dataclass
class RangeFilter:
    """Bounds from the pushed filters, which narrow ranges."""

    offset_low: int = 0
    offset_high: int | None = None
    timestamp_low_ms: int | None = None
    _tests: list[tuple[str, Any]] = field(default_factory=list)
    """Filters on topic and partition, with the values that match."""

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Applies supported filters; returns those that Spark must check itself."""
        return [kept for kept in filters if not self._take(kept)]

    def apply(self, span: Range) -> Range | None:
        """Narrowed range; None if it is empty."""
        for column, allowed in self._tests:
            if getattr(span, column) not in allowed:
                return None
        high = span.end if self.offset_high is None else min(span.end, self.offset_high)
        low = max(span.start, self.offset_low)
        return span._replace(start=low, end=high) if low < high else None

    def _take(self, pushed: Filter) -> bool:
        path = getattr(pushed, "attribute", None)
        if path is None or len(path) != 1:
            return False
        (column,) = path
        if isinstance(pushed, IsNotNull):
            # These columns are never null.
            return column in (*_EXACT, "timestamp", "timestampType")
        value = getattr(pushed, "value", None)
        if column == "timestamp":
            self._take_timestamp(pushed, value)
            return False
        if column in ("topic", "partition"):
            return self._take_name(pushed, column, value)
        return column == "offset" and self._take_offset(pushed, value)

    def _take_name(self, pushed: Filter, column: str, value: Any) -> bool:
        if isinstance(pushed, _EQUAL):
            self._tests.append((column, (value,)))
        elif isinstance(pushed, In):
            self._tests.append((column, tuple(value)))
        else:
            return False
        return True

    def _take_offset(self, pushed: Filter, value: Any) -> bool:
        if type(value) is not int:
            return False
        for kind, low, high in _BOUNDS:
            if isinstance(pushed, kind):
                if low is not None:
                    self.offset_low = max(self.offset_low, low(value))
                if high is not None:
                    end = high(value)
                    self.offset_high = (
                        end if self.offset_high is None else min(self.offset_high, end)
                    )
                return True
        return False

    def _take_timestamp(self, pushed: Filter, value: Any) -> None:
        if not isinstance(pushed, (*_EQUAL, GreaterThan, GreaterThanOrEqual)):
            return
        if isinstance(value, datetime):
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            millis = int(moment.timestamp() * 1000)
            self.timestamp_low_ms = max(self.timestamp_low_ms or 0, millis)


_Bound = Callable[[int], int]
_BOUNDS: tuple[tuple[type[Any], _Bound | None, _Bound | None], ...] = (
    (EqualTo, lambda n: n, lambda n: n + 1),
    (EqualNullSafe, lambda n: n, lambda n: n + 1),
    (GreaterThan, lambda n: n + 1, None),
    (GreaterThanOrEqual, lambda n: n, None),
    (LessThan, None, lambda n: n),
    (LessThanOrEqual, None, lambda n: n + 1),
)
