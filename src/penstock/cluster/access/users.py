"""Changes to users' SCRAM credentials (KIP-554) and access keys: one record per user.

Owns: the commands and their bounds. A user exists while it has a credential or a key. A record is
replaced as a whole.
Elsewhere: making credentials from passwords (`security.scram`), permission to ask (`api`).
"""

from collections.abc import Mapping, Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Delete, Put, Store, StoreEntry
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.store_keys import AccessKeyRecord, ScramRecord, UserRecord
from penstock.security.scram import Credential

USERS_MAX = 10_000
NAME_BYTES_MAX = 255
KEYS_MAX = 10
"""Access keys per user; two are enough to replace one by the next."""


async def alter(
    store: Store,
    image: Image,
    name: str,
    credentials: Mapping[str, Credential | None],
) -> int:
    """Sets credentials by mechanism, None deletes; returns the revision at which they hold."""
    _check_count(image, name)
    key = store_keys.user_key(name)

    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        record = store_keys.decode(UserRecord, entry.value) if entry else UserRecord()
        scram = dict(record.scram)
        for mechanism, credential in credentials.items():
            if credential is not None:
                scram[mechanism] = ScramRecord(
                    credential.salt,
                    credential.iterations,
                    credential.stored_key,
                    credential.server_key,
                )
            elif scram.pop(mechanism, None) is None:
                raise Refused(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    f"{name!r} has no {mechanism} credential to delete",
                )
        return [_kept(key, UserRecord(scram, record.access_keys))]

    return await compare_and_swap.swap(store, [key], decide)


def credential(image: Image, name: str, mechanism: str) -> Credential | None:
    """Stored credential of a user for a mechanism, if there is one."""
    user = image.users.get(name)
    record = user.scram.get(mechanism) if user is not None else None
    if record is None:
        return None
    return Credential(record.salt, record.iterations, record.stored_key, record.server_key)


def _check_count(image: Image, name: str) -> None:
    if name not in image.users and len(image.users) >= USERS_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"there are {USERS_MAX} users already")


def _kept(key: str, record: UserRecord) -> Put | Delete:
    is_empty = not record.scram and not record.access_keys
    return Delete(key) if is_empty else Put(key, store_keys.encode(record))


# -- access keys ------------------------------------------------------------------------------


async def add_key(
    store: Store, image: Image, name: str, access_key: str, secret: str, now_ms: int
) -> int:
    """Adds an access key to a user, and creates the user if needed; returns the revision."""
    _check_count(image, name)
    key = store_keys.user_key(name)

    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        record = store_keys.decode(UserRecord, entry.value) if entry else UserRecord()
        if len(record.access_keys) >= KEYS_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"{name!r} has {KEYS_MAX} keys; delete one first"
            )
        made = {access_key: AccessKeyRecord(secret, now_ms)}
        return [_kept(key, UserRecord(record.scram, record.access_keys | made))]

    return await compare_and_swap.swap(store, [key], decide)


async def remove_key(store: Store, image: Image, access_key: str) -> int:
    """Removes an access key from its user; raises Refused if it does not exist."""
    missing = Refused(ErrorCode.RESOURCE_NOT_FOUND, f"there is no access key {access_key!r}")
    found = [name for name, user in image.users.items() if access_key in user.access_keys]
    if not found:
        raise missing
    key = store_keys.user_key(found[0])

    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        record = store_keys.decode(UserRecord, entry.value) if entry else UserRecord()
        left = {one: kept for one, kept in record.access_keys.items() if one != access_key}
        if len(left) == len(record.access_keys):
            raise missing
        return [_kept(key, UserRecord(record.scram, left))]

    return await compare_and_swap.swap(store, [key], decide)
