"""Changing users' SCRAM credentials (KIP-554) and access keys: one record for each, swapped whole.

Owns: the commands and their bounds. A user is there as long as one credential or key is.
Leaves to others: how passwords become credentials (`security.scram`), who may ask (`api`).
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
"""Access keys of one user; two are enough to change from one to the next."""


async def alter(
    store: Store,
    image: Image,
    name: str,
    credentials: Mapping[str, Credential | None],
) -> int:
    """Sets credentials by mechanism, None deletes; answers the revision that is in force then."""
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
    """What is kept of a user's password, if there is one."""
    user = image.users.get(name)
    record = user.scram.get(mechanism) if user is not None else None
    if record is None:
        return None
    return Credential(record.salt, record.iterations, record.stored_key, record.server_key)


def _check_count(image: Image, name: str) -> None:
    if name not in image.users and len(image.users) >= USERS_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"there are {USERS_MAX} users already")


def _kept(key: str, record: UserRecord) -> Put | Delete:
    is_somebody = bool(record.scram or record.access_keys)
    return Put(key, store_keys.encode(record)) if is_somebody else Delete(key)


# -- access keys ------------------------------------------------------------------------------


async def add_key(
    store: Store, image: Image, name: str, access_key: str, secret: str, now_ms: int
) -> int:
    """Gives a user a key, and makes the user if need be; answers the revision."""
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
    """Takes a key from whoever has it; refuses if nobody does."""
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
