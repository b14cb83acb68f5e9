"""Data loss: an error, or a warning if the user set failOnDataLoss to false."""

import logging

_log = logging.getLogger("penstock.spark")


class DataLoss(Exception):
    """Records that the query should read no longer exist."""


def report_loss(message: str, *, fails: bool) -> None:
    """Raises DataLoss, or logs a warning if `fails` is false."""
    if fails:
        raise DataLoss(f"{message}; set failOnDataLoss to false to continue without them")
    _log.warning("%s; continuing without them", message)
