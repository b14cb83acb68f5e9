"""Stages written in SQL: `pipeline.sql("large", "select * from rows where cents > 1000", to=...)`.

The query reads the rows of the stage as the table `rows`, and lookup tables by their names. They
are temporary views only while Spark analyzes the query, so stages do not see each other's.
"""

from typing import Any, Final

from penstock.pipelines.endpoints import PipelineError

ROWS: Final = "rows"
"""Name of the table that a query reads the stage's rows from."""


class SqlStage:
    """Function of a stage that runs a query; named like the stage."""

    def __init__(self, name: str, query: str) -> None:
        if not query.strip():
            raise PipelineError(f"stage {name!r}: the query is empty")
        self.__name__ = name
        self.query = query

    def __call__(self, rows: Any, **tables: Any) -> Any:
        spark = rows.sparkSession
        if not hasattr(spark, "sparkContext"):
            raise PipelineError(
                f"stage {self.__name__!r}: SQL stages need a session with --master: Spark Connect "
                "analyzes a query again when its views are gone"
            )
        if ROWS in tables:
            raise PipelineError(f"stage {self.__name__!r}: no table may be named {ROWS!r}")
        views = {ROWS: rows, **tables}
        for name, frame in views.items():
            frame.createOrReplaceTempView(name)
        try:
            return spark.sql(self.query)
        finally:
            for name in views:
                spark.catalog.dropTempView(name)
