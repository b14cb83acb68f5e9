"""A Spark session as a command asks for it: local, on a cluster, or by Spark Connect.

Settings are those a pipeline wants and a user has not chosen: quiet, UTC, this Python for the
workers, and what makes small batches quick. A session that is there already is taken as it is.
"""

import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from penstock.spark.option_values import OptionError

DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}

ON_ONE_MACHINE = {
    # Spark's own choice writes checkpoints through an interface of Hadoop that, without Hadoop's
    # native library, starts a process (readlink, chmod) six times a file, two files a batch. This
    # one starts chmod twice a file; on a local disk its rename is as atomic.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # Over TCP a batch waits some 40 ms for Spark's small messages to its Python workers. Who may
    # connect is the sockets' permissions: only their owner, with any usual umask.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""Settings for small batches where driver, tasks and checkpoints are on one machine."""


def has_session() -> bool:
    """Whether this process has a session already, which is then not ours to stop."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        return False
    return SparkSession.getActiveSession() is not None


def worker_python() -> str:
    """The Python for Spark's workers: this one, through `bin/penstock-python` where that is."""
    quick = os.path.join(os.path.dirname(sys.executable), "penstock-python")
    return quick if os.access(quick, os.X_OK) else sys.executable


def open_session(
    name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """`master` as in spark-submit, `remote` is sc://host:port. Raises OptionError."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise OptionError("this needs PySpark: pip install 'penstock-mq[spark]'") from None
    if master and remote:
        raise OptionError("a session has a --master or a --remote, not both")
    os.environ.setdefault("PYSPARK_PYTHON", worker_python())
    builder = SparkSession.builder.appName(name)
    defaults = DEFAULTS
    if remote:
        builder = builder.remote(remote)
    else:
        builder = builder.master(master or "local[*]")
        if (master or "local").startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            if not has_session():  # Where that one keeps its checkpoints is not known.
                defaults = {**DEFAULTS, **ON_ONE_MACHINE}
    for key, value in {**defaults, **(settings or {})}.items():
        # A server of Spark Connect has its own for all but SQL.
        if not remote or key.startswith("spark.sql."):
            builder = builder.config(key, value)
    with warnings.catch_warnings():
        # PySpark leaves sockets to the garbage collector.
        warnings.simplefilter("ignore")
        try:
            session = builder.getOrCreate()
        except ImportError as error:  # What Spark Connect needs is not part of every PySpark.
            raise OptionError(
                f"this needs Spark Connect: pip install 'penstock-mq[connect]' ({error})"
            ) from None
    if not remote:
        session.sparkContext.setLogLevel("ERROR")
    return session
