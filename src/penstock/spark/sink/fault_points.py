"""Fault points: named steps of the exactly-once protocol at which a test ends this process.

A test cannot hit the gap between a task's write and its commit by killing at random moments: it
lasts milliseconds. So the sink calls `reach` at each step. It does nothing unless the environment
variable `ENVIRONMENT` names a folder and that folder has a file with the name of the step. The
first process that removes the file writes `<step>.reached` with its id and ends by SIGKILL; if the
file says `wait`, it waits until the test kills it together with the driver.
"""

import os
import signal
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = "PENSTOCK_SPARK_FAULT_POINTS"

TASK_SENT: Final = "task-sent"
"""A task has written its records; its ledger entry is not part of the transaction yet."""
TASK_WRITTEN: Final = "task-written"
"""The transaction of a task is complete and open; the driver does not know it yet."""
BEFORE_INTENT: Final = "before-intent"
"""The driver has the transactions of all tasks; the commit intent is not stored."""
INTENT_STORED: Final = "intent-stored"
"""The commit intent is stored; no transaction is committed."""
FIRST_COMMITTED: Final = "first-committed"
"""At least one transaction of the batch is committed."""
ALL_COMMITTED: Final = "all-committed"
"""All transactions are committed; the batch is not in Spark's commit log."""

POINTS: Final = (
    TASK_SENT,
    TASK_WRITTEN,
    BEFORE_INTENT,
    INTENT_STORED,
    FIRST_COMMITTED,
    ALL_COMMITTED,
)
WAIT: Final = "wait"


def reach(point: str) -> None:
    """Ends this process if a test has armed the point."""
    folder = os.environ.get(ENVIRONMENT)
    if folder is None:
        return
    armed = Path(folder, point)
    try:
        action = armed.read_text()
        armed.unlink()
    except FileNotFoundError:
        return
    Path(folder, f"{point}.reached").write_text(str(os.getpid()))
    if action == WAIT:
        while True:
            signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)
