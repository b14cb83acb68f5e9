"""File `key` of a log: its root key, wrapped by a key-encryption key of the node.

Written durably before the first sealed byte, and again, with the same root key, after a change of
the key-encryption key (`rewrap`). Topic deletion destroys it first (`shred`): without it the rest
of the log is unreadable, wherever copies of its files may be.

Every function blocks.
"""

import msgspec

from penstock.base.errors import Corrupt
from penstock.base.ports import Disk
from penstock.log import files
from penstock.log.encryption.log_encryption import LogCipher
from penstock.security.keyring import Keyring, KeyTrouble, Wrapped

NAME = "key"


def read(disk: Disk, directory: str, keyring: Keyring | None) -> LogCipher:
    """Cipher of a log, without a key if the log has none. Raises Corrupt for an unusable key."""
    cipher = LogCipher(keyring)
    wrapped = peek(disk, directory)
    if wrapped is None:
        return cipher
    if keyring is None:
        raise Corrupt(
            f"{directory} is encrypted, and this node has no key-encryption key: "
            "set encryption.kek.source"
        )
    try:
        cipher.unlock(wrapped, keyring.unwrap(wrapped))
    except KeyTrouble as trouble:
        raise Corrupt(f"{directory}: {trouble}") from trouble
    return cipher


def peek(disk: Disk, directory: str) -> Wrapped | None:
    """Reads the wrapped key; None when there is none. Raises Corrupt."""
    path = files.join(directory, NAME)
    if not disk.exists(path):
        return None
    body = files.read_checked(disk, path)
    try:
        if body is not None:
            return msgspec.json.decode(body, type=Wrapped)
    except msgspec.MsgspecError:
        pass
    raise Corrupt(f"key file {path} is damaged: the log cannot be read without it")


def make(disk: Disk, directory: str, cipher: LogCipher) -> None:
    """Creates the log's key. Durable when it returns."""
    keyring = cipher.keyring
    assert keyring is not None
    root = keyring.new_root()
    wrapped = keyring.wrap(root)
    _write(disk, directory, wrapped)
    cipher.unlock(wrapped, root)


def rewrap(disk: Disk, directory: str, cipher: LogCipher) -> bool:
    """Wraps the log's key with the current key-encryption key; False if it already is."""
    keyring, wrapped = cipher.keyring, cipher.wrapped
    if keyring is None or wrapped is None or wrapped.kek_id == keyring.current.id:
        return False
    fresh = keyring.wrap(keyring.unwrap(wrapped))
    _write(disk, directory, fresh)
    cipher.wrapped = fresh
    return True


def shred(disk: Disk, directory: str) -> None:
    """Destroys the key: overwrite, sync, unlink, sync."""
    shredded = False
    for name in (NAME, NAME + files.TEMPORARY):
        path = files.join(directory, name)
        if disk.exists(path):
            file = disk.open(path)
            try:
                file.erase()
                file.sync()
            finally:
                file.close()
            disk.unlink(path)
            shredded = True
    if shredded:
        disk.sync_dir(directory)


def _write(disk: Disk, directory: str, wrapped: Wrapped) -> None:
    files.write_durably(disk, files.join(directory, NAME), msgspec.json.encode(wrapped))
