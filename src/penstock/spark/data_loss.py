"""Records that are gone: an error, or a warning where the user wants to go on without them."""

import logging

_log = logging.getLogger("penstock.spark")


class DataLoss(Exception):
    """Records that should be read are not there any more."""


def lost(message: str, *, fails: bool) -> None:
    """Raises DataLoss, or says so in the log where the user wants to go on."""
    if fails:
        raise DataLoss(f"{message}; set failOnDataLoss to false to go on without them")
    _log.warning("%s; going on without them", message)
