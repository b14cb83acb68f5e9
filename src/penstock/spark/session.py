"""Spark session: local, on a cluster, or through Spark Connect.

Adds settings for pipelines that the user has not chosen: no progress output, UTC, this Python for
the workers, and settings that speed up small batches. An existing session is used unchanged.
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
    # Spark's default writes checkpoints through a Hadoop interface that, without Hadoop's native
    # library, starts a process (readlink, chmod) six times per file, two files per batch. This
    # one starts chmod twice per file; on a local disk its rename is as atomic.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # Over TCP a batch waits about 40 ms for Spark's small messages to its Python workers. The
    # permissions of the sockets admit only their owner, with any usual umask.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""Settings for small batches where driver, tasks and checkpoints are on one machine."""


def has_session() -> bool:
    """True while this process has an active session, which the caller must not stop."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        return False
    return SparkSession.getActiveSession() is not None


def worker_python() -> str:
    """Python executable of Spark's workers: `penstock-python` beside this one, or this one."""
    quick = os.path.join(os.path.dirname(sys.executable), "penstock-python")
    return quick if os.access(quick, os.X_OK) else sys.executable


def open_session(
    name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """Opens a session; `master` is as in spark-submit, `remote` is sc://host:port.

    Raises OptionError if a package is missing or both are given.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise OptionError("PySpark is not installed: pip install 'penstock-mq[spark]'") from None
    if master and remote:
        raise OptionError("--master and --remote exclude each other: pass one of them")
    os.environ.setdefault("PYSPARK_PYTHON", worker_python())
    builder = SparkSession.builder.appName(name)
    defaults = DEFAULTS
    if remote:
        builder = builder.remote(remote)
    else:
        builder = builder.master(master or "local[*]")
        if (master or "local").startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            if not has_session():  # An existing session may keep checkpoints on another disk.
                defaults = {**DEFAULTS, **ON_ONE_MACHINE}
    for key, value in {**defaults, **(settings or {})}.items():
        # A Spark Connect server accepts only SQL settings.
        if not remote or key.startswith("spark.sql."):
            builder = builder.config(key, value)
    with warnings.catch_warnings():
        # PySpark leaves closing its sockets to the garbage collector.
        warnings.simplefilter("ignore")
        try:
            session = builder.getOrCreate()
        except ImportError as error:  # Spark Connect's dependencies are optional in PySpark.
            raise OptionError(
                f"Spark Connect is not installed: pip install 'penstock-mq[connect]' ({error})"
            ) from None
    if not remote:
        session.sparkContext.setLogLevel("ERROR")
    return session
