"""Reads selected records of a partition: those that a queue delivered to one batch.

A queue delivers released, delayed and out-of-order records, so the offsets of a batch may have
gaps. Nearby ranges are fetched together and the records between them dropped; distant ranges are
fetched one by one.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow.compute as pc
from pyspark.sql.types import StructType

from penstock.spark.data_loss import report_loss
from penstock.spark.range_planning import Range
from penstock.spark.settings import ReadSettings
from penstock.spark.source.arrow import int64s
from penstock.spark.source.rows import read_rows, schema_of

GAP_RECORDS_MAX: Final = 1_000
"""Maximum unneeded records between two ranges of one fetch; cheaper than another request."""
_OFFSET = "offset"


def read_selected(
    settings: ReadSettings, schema: StructType, spans: Sequence[Range]
) -> Iterator[Any]:
    """Arrow batches of exactly the records in these ranges."""
    names = [field.name for field in schema.fields]
    for group in group_nearby(spans):
        whole = group[0]._replace(end=group[-1].end)
        wanted = sum(span.size for span in group)
        found = 0
        asked = schema if _OFFSET in names else schema_of([*names, _OFFSET])
        for batch in read_rows(settings, asked, whole):
            kept = batch if wanted == whole.size else _only(batch, group)
            found += kept.num_rows
            if kept.num_rows:
                yield kept.select(names)
        if found < wanted:
            report_loss(
                f"{whole}: {wanted - found} records of the queue no longer exist",
                fails=settings.fail_on_data_loss,
            )


def group_nearby(spans: Sequence[Range]) -> list[list[Range]]:
    """Groups of ranges to fetch together, sorted."""
    groups: list[list[Range]] = []
    for span in sorted(spans):
        before = groups[-1][-1] if groups else None
        if (
            before is not None
            and before.where == span.where
            and span.start - before.end <= GAP_RECORDS_MAX
        ):
            groups[-1].append(span)
        else:
            groups.append([span])
    return groups


def _only(batch: Any, group: Sequence[Range]) -> Any:
    wanted = [offset for span in group for offset in range(span.start, span.end)]
    return batch.filter(pc.is_in(batch.column(_OFFSET), value_set=int64s(wanted)))
