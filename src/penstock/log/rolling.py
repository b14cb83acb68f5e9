"""Beginning to append: to the segment that is there, or to a new one.

A segment holds encrypted batches or others, never both (`segment`): where the config wants another
kind than what is there, the log rolls. A log that is to be encrypted for the first time gets its
key here, which blocks once in its life; one that is opened with such a config has it already.
"""

from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, Refused
from penstock.log.encryption import key_file
from penstock.log.encryption.log_encryption import NO_KEY
from penstock.log.segment import Segment

if TYPE_CHECKING:
    from penstock.log.log import Log


def prepare(log: "Log") -> None:
    """Before the first append: the active segment must know its index."""
    log.require_online()
    log.segments.active.load()
    log.prepared = True
    log.changed = True


def roll(log: "Log") -> None:
    """Seals the active segment and starts one at the end offset. Nothing to do when empty."""
    if not log.prepared:
        prepare(log)
    sealed = log.segments.active
    if sealed.base_offset == log.end_offset:
        return
    interval = log.config.index_interval_bytes
    try:
        active = Segment.create(log.disk, log.path, log.end_offset, interval, log.vault)
    except OSError as error:
        log.write_failed(error)
        raise
    log.take_snapshot()
    sealed.drop_tail()
    log.unsynced.append(sealed)
    log.segments.add(active)
    log.dir_dirty = True
    log.keep_loaded(sealed)


def begin(log: "Log") -> Segment:
    """The active segment, ready for batches as the config wants them."""
    encrypted = log.config.encrypted
    if log.segments.active.find_kind() not in (None, encrypted):
        roll(log)
    active = log.segments.active
    if encrypted and not log.vault.has_key:
        _give_key(log)
    active.begin(encrypted)
    return active


def _give_key(log: "Log") -> None:
    if log.vault.keyring is None:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, NO_KEY)
    try:
        key_file.make(log.disk, log.path, log.vault)
    except OSError as error:
        log.write_failed(error)
        raise
