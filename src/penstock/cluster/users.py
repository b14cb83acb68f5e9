"""Changing users' SCRAM credentials (KIP-554): one key for each user, swapped as a whole.

Owns: the commands and their bounds. A user is there as long as one credential is.
Leaves to others: how passwords become credentials (`security.scram`), who may ask (`api`).
"""

from collections.abc import Mapping, Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Delete, Entry, Put, Store
from penstock.cluster import changes, keys
from penstock.cluster.image import Image
from penstock.cluster.keys import ScramRecord, UserRecord
from penstock.security.scram import Credential

USERS_MAX = 10_000
NAME_BYTES_MAX = 255


async def alter(
    store: Store,
    image: Image,
    name: str,
    credentials: Mapping[str, Credential | None],
) -> int:
    """Sets credentials by mechanism, None deletes; answers the revision that is in force then."""
    if name not in image.users and len(image.users) >= USERS_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"there are {USERS_MAX} users already")
    key = keys.user_key(name)

    def decide(entries: Sequence[Entry | None]) -> Sequence[Put | Delete]:
        entry = entries[0]
        record = keys.decode(UserRecord, entry.value) if entry else UserRecord()
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
        return [Put(key, keys.encode(UserRecord(scram)))] if scram else [Delete(key)]

    return await changes.swap(store, [key], decide)


def credential(image: Image, name: str, mechanism: str) -> Credential | None:
    """What is kept of a user's password, if there is one."""
    user = image.users.get(name)
    record = user.scram.get(mechanism) if user is not None else None
    if record is None:
        return None
    return Credential(record.salt, record.iterations, record.stored_key, record.server_key)
