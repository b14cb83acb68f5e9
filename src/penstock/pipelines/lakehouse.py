"""Delta and Iceberg tables as targets of stages: append, upsert, and history (SCD types 1 and 2).

The tables are written by their own Python libraries, deltalake and pyiceberg, not by Spark's
connectors: no released connector of Iceberg supports the Spark that Penstock needs, and each of
Delta supports one minor version. So a batch passes through the driver as Arrow, at most `per_batch`
rows, and every engine that knows the format reads the result.

Exactly once: the number of the batch is committed together with its rows, under the id of the
query, as Delta's application transaction or as a property of the Iceberg table. A batch that Spark
repeats is recognized by it.

Changes are planned in memory (`plan_changes`, pure): rows of the batch and the current rows of
their keys in, keys to remove and rows to add out.
"""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

from penstock.pipelines.endpoints import DeltaTable, IcebergTable, PipelineError
from penstock.spark.sink.upsert import query_id_of

VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
IS_CURRENT: Final = "is_current"
HISTORY: Final = (VALID_FROM, VALID_TO, IS_CURRENT)
"""Columns that SCD type 2 adds."""

_PROPERTY: Final = "penstock.batch."
_DELETES: Final = "_penstock_deletes"
_ACTION: Final = "_penstock_action"

Row = dict[str, Any]


class ChangePlan(NamedTuple):
    removed: list[tuple[Any, ...]]
    """Keys whose current rows are removed."""
    added: list[Row]


def plan_changes(
    target: DeltaTable | IcebergTable, current: Iterable[Row], batch: Sequence[Row]
) -> ChangePlan:
    """Changes of a batch. `current` are the current rows of the batch's keys, and maybe others.

    Rows of a key are taken in the order of `sequence_by`, equal ones in the order of the batch. A
    row that is older than the current one of its key is left out.
    """
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    for row in batch:
        key = tuple(row[name] for name in target.keys)
        if None in key:
            raise PipelineError(f"{target}: a row has a null in its key {', '.join(target.keys)}")
        by_key.setdefault(key, []).append(row)
    before = {tuple(row[name] for name in target.keys): row for row in current}
    plan = ChangePlan([], [])
    for key, rows in by_key.items():
        _plan_key(target, key, before.get(key), _in_order(target, rows), plan)
    return plan


def _in_order(target: DeltaTable | IcebergTable, rows: list[Row]) -> list[Row]:
    name = target.sequence_by
    if name is None:
        return rows
    if any(row[name] is None for row in rows):
        raise PipelineError(f"{target}: a row has a null in {name!r}, by which rows are ordered")
    return sorted(rows, key=lambda row: row[name])


def _plan_key(
    target: DeltaTable | IcebergTable,
    key: tuple[Any, ...],
    current: Row | None,
    rows: list[Row],
    plan: ChangePlan,
) -> None:
    at = target.sequence_by
    opened = VALID_FROM if target.scd == 2 else at
    if current is not None and at is not None and opened is not None:
        rows = [row for row in rows if row[at] >= current[opened]]
    if not rows:
        return
    if target.scd == 1:
        last = rows[-1]
        if current is not None:
            plan.removed.append(key)
        if not last[_DELETES]:
            plan.added.append(_without_marks(last))
        return
    added: list[Row] = []
    open_row = current
    for row in rows:
        assert at is not None, "SCD type 2 has sequence_by"
        is_same = open_row is not None and all(
            open_row.get(name) == value for name, value in row.items() if name not in (_DELETES, at)
        )
        if is_same and not row[_DELETES]:
            continue
        if open_row is not None:
            added.append({**open_row, VALID_TO: row[at], IS_CURRENT: False})
        open_row = None
        if not row[_DELETES]:
            since = {VALID_FROM: row[at], VALID_TO: None, IS_CURRENT: True}
            open_row = {**_without_marks(row), **since}
    if open_row is not None:
        added.append(open_row)
    if current is not None and added == [current]:
        return
    if current is not None:
        plan.removed.append(key)
    plan.added.extend(added)


def _without_marks(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != _DELETES}


# -- tables -----------------------------------------------------------------------------------


class _Table(Protocol):
    """Table of one format; methods take and return Arrow tables."""

    def last_batch(self, writer: str) -> int: ...

    def count(self) -> int: ...

    def append(self, rows: Any, writer: str, number: int) -> None: ...

    def current(self, keys: Any) -> Any:
        """Current rows whose first key column is among `keys`; None if there is no table."""

    def change(self, removed: Any, added: Any, writer: str, number: int) -> None: ...


class _Delta:
    def __init__(self, target: DeltaTable) -> None:
        self._target = target
        self._options = dict(target.storage_options)
        self._opened: Any = None
        """Version that `current` has read; changes are based on it."""

    def last_batch(self, writer: str) -> int:
        table = self._open()
        found = None if table is None else table.transaction_version(writer)
        return -1 if found is None else int(found)

    def count(self) -> int:
        table = self._open()
        return 0 if table is None else int(table.to_pyarrow_dataset().count_rows())

    def append(self, rows: Any, writer: str, number: int) -> None:
        deltalake: Any = import_module("deltalake")
        deltalake.write_deltalake(
            self._target.path,
            rows,
            mode="append",
            schema_mode="merge",
            partition_by=list(self._target.partition_by) or None,
            storage_options=self._options or None,
            commit_properties=self._mark(writer, number),
        )

    def current(self, keys: Any) -> Any:
        import pyarrow.dataset as ds

        table = self._opened = self._open()
        if table is None:
            return None
        wanted = ds.field(self._target.keys[0]).isin(keys)
        if self._target.scd == 2:
            wanted &= ds.field(IS_CURRENT)
        return table.to_pyarrow_dataset().to_table(filter=wanted)

    def change(self, removed: Any, added: Any, writer: str, number: int) -> None:
        import pyarrow as pa

        if self._opened is None:
            self.append(added, writer, number)
            return
        marked = [
            part.append_column(_ACTION, pa.array([action] * len(part), pa.string()))
            for part, action in ((removed, "remove"), (added, "add"))
        ]
        source = pa.concat_tables(marked, promote_options="default")
        keys = [f"target.`{name}` = source.`{name}`" for name in self._target.keys]
        current = ["target.is_current"] if self._target.scd == 2 else []
        matches = " and ".join([f"source.{_ACTION} = 'remove'", *keys, *current])
        columns = {f"`{name}`": f"source.`{name}`" for name in added.column_names}
        (
            self._opened.merge(
                source,
                matches,
                source_alias="source",
                target_alias="target",
                merge_schema=True,
                commit_properties=self._mark(writer, number),
            )
            .when_matched_delete()
            .when_not_matched_insert(columns, predicate=f"source.{_ACTION} = 'add'")
            .execute()
        )

    def _open(self) -> Any:
        deltalake: Any = import_module("deltalake")
        if not deltalake.DeltaTable.is_deltatable(self._target.path, self._options or None):
            return None
        return deltalake.DeltaTable(self._target.path, storage_options=self._options or None)

    def _mark(self, writer: str, number: int) -> Any:
        deltalake: Any = import_module("deltalake")
        mark = deltalake.Transaction(writer, number)
        return deltalake.CommitProperties(app_transactions=[mark])


class _Iceberg:
    def __init__(self, target: IcebergTable) -> None:
        catalogs: Any = import_module("pyiceberg.catalog")
        self._target = target
        self._catalog = catalogs.load_catalog(target.catalog_name, **dict(target.catalog))

    def last_batch(self, writer: str) -> int:
        table = self._open()
        return -1 if table is None else int(table.properties.get(_PROPERTY + writer, -1))

    def count(self) -> int:
        table = self._open()
        return 0 if table is None else int(table.scan().count())

    def append(self, rows: Any, writer: str, number: int) -> None:
        self._write(None, rows, writer, number)

    def current(self, keys: Any) -> Any:
        table = self._open()
        if table is None:
            return None
        return table.scan(row_filter=self._of_keys(keys)).to_arrow()

    def change(self, removed: Any, added: Any, writer: str, number: int) -> None:
        self._write(removed, added, writer, number)

    def _write(self, removed: Any, added: Any, writer: str, number: int) -> None:
        table = self._open()
        if table is None:
            table = self._create(added.schema)
        with table.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(added.schema)
            if removed is not None and len(removed):
                first = self._target.keys[0]
                wanted = self._of_keys(removed.column(first))
                added = self._with_others(table, wanted, removed, added)
                transaction.delete(wanted)
            if len(added):
                transaction.append(added)
            transaction.set_properties({_PROPERTY + writer: str(number)})

    def _with_others(self, table: Any, wanted: Any, removed: Any, added: Any) -> Any:
        """Adds rows of other keys that the filter, on the first key column only, removes too."""
        import pyarrow as pa

        if len(self._target.keys) == 1:
            return added
        gone = {tuple(row.values()) for row in removed.to_pylist()}
        rows = table.scan(row_filter=wanted).to_arrow()
        names = self._target.keys
        others = [row for row in rows.to_pylist() if tuple(row[n] for n in names) not in gone]
        if not others:
            return added
        kept = pa.Table.from_pylist(others, rows.schema)
        return pa.concat_tables([added, kept], promote_options="permissive")

    def _of_keys(self, keys: Any) -> Any:
        """Filter on the first key column; of an SCD type 2 table only current rows."""
        expressions: Any = import_module("pyiceberg.expressions")
        wanted = expressions.In(self._target.keys[0], keys.unique().to_pylist())
        if self._target.scd == 2:
            wanted = expressions.And(wanted, expressions.EqualTo(IS_CURRENT, True))
        return wanted

    def _open(self) -> Any:
        if not self._catalog.table_exists(self._target.name):
            return None
        return self._catalog.load_table(self._target.name)

    def _create(self, schema: Any) -> Any:
        namespace = self._target.name.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        table = self._catalog.create_table(self._target.name, schema=schema)
        if self._target.partition_by:
            with table.update_spec() as update:
                for name in self._target.partition_by:
                    update.add_identity(name)
        return table


# -- batches ----------------------------------------------------------------------------------


def check_target(target: DeltaTable | IcebergTable, stage: str) -> None:
    """Opens the table, or raises PipelineError before the query starts."""
    try:
        _open_table(target).last_batch("")
    except ImportError as error:
        raise PipelineError(
            f"stage {stage!r} writes to {target}, which needs the package {error.name}: "
            "pip install 'penstock-mq[lakehouse]'"
        ) from None
    except Exception as error:  # noqa: BLE001 - the libraries have errors of many kinds
        raise PipelineError(
            f"stage {stage!r} cannot open {target}: {type(error).__name__}: {error}"
        ) from None


def batch_writer(target: DeltaTable | IcebergTable) -> Callable[[Any, int], None]:
    """Function for `foreachBatch` that writes each batch to the table once."""

    def write(batch: Any, number: int) -> None:
        write_batch(target, batch, number, query_id_of(batch))

    return write


def write_batch(target: DeltaTable | IcebergTable, batch: Any, number: int, writer: str) -> int:
    """Writes a batch, unless the table has it: `writer` has written this number before.

    Returns the number of rows of the batch, 0 if it was written before.
    """
    from pyspark.sql import functions as f

    table = _open_table(target)
    if table.last_batch(writer) >= number:
        return 0
    if not target.keys:
        rows = _in_utc(batch.toArrow())
        if len(rows):
            table.append(rows, writer, number)
        return len(rows)
    deletes = f.expr(target.apply_as_deletes) if target.apply_as_deletes else f.lit(False)
    marked = batch.withColumn(_DELETES, f.coalesce(deletes.cast("boolean"), f.lit(False)))
    rows = _in_utc(marked.toArrow())
    if len(rows):
        _write_changes(target, table, rows, number, writer)
    return len(rows)


def count_rows(target: DeltaTable | IcebergTable) -> int:
    """Number of rows in the table, as its own library reads it; 0 if there is none."""
    return _open_table(target).count()


def _write_changes(
    target: DeltaTable | IcebergTable, table: _Table, rows: Any, number: int, writer: str
) -> None:
    import pyarrow as pa

    schema = rows.drop_columns([_DELETES]).schema
    if target.scd == 2:
        moment = schema.field(target.sequence_by).type
        for name, kind in zip(HISTORY, (moment, moment, pa.bool_()), strict=True):
            schema = schema.append(pa.field(name, kind))
    found = table.current(rows.column(target.keys[0]).combine_chunks())
    current = [] if found is None else found.to_pylist()
    plan = plan_changes(target, current, rows.to_pylist())
    if not plan.removed and not plan.added:
        return
    if found is not None:  # Rows of the table may have columns that the batch lacks.
        names = set(schema.names)
        for field in found.schema:
            if field.name not in names:
                schema = schema.append(field)
    key_schema = pa.schema([schema.field(name) for name in target.keys])
    removed = pa.Table.from_pylist(
        [dict(zip(target.keys, key, strict=True)) for key in plan.removed], key_schema
    )
    table.change(removed, pa.Table.from_pylist(plan.added, schema), writer, number)


def _open_table(target: DeltaTable | IcebergTable) -> _Table:
    return _Delta(target) if isinstance(target, DeltaTable) else _Iceberg(target)


def _in_utc(rows: Any) -> Any:
    """Timestamps with the zone UTC, which both formats require; Spark uses the session's zone."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp(field.type.unit, "UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
