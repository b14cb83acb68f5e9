"""Quiet end of Spark's Python processes whose connection Spark has closed.

When a query is stopped within a batch, Spark closes the connections to its Python processes. Each
of them then fails to flush its output, and prints a traceback of BrokenPipeError that tells nothing
about the query. `end_quietly` suppresses this one error: in `sys.excepthook`, and in the main
module of workers, `pyspark.daemon`, which prints tracebacks itself.
"""

import sys
import traceback
from types import TracebackType
from typing import Any, Final

_CLOSED: Final = (BrokenPipeError, ConnectionResetError)
_DAEMON: Final = "pyspark.daemon"
_RUNNERS: Final = (_DAEMON, "pyspark.sql.streaming.", "pyspark.sql.worker.")


class _Traceback:
    """The module traceback, as the daemon uses it, without errors of closed connections."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        if not isinstance(sys.exception(), _CLOSED):
            traceback.print_exc()


def end_quietly() -> None:
    """Suppresses errors of closed connections, if this process belongs to Spark."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is None or not spec.name.startswith(_RUNNERS):
        return
    sys.excepthook = _report
    if spec.name == _DAEMON:
        vars(main)["traceback"] = _Traceback()


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, _CLOSED):
        sys.__excepthook__(kind, error, trace)
