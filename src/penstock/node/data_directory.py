"""Ownership of the data directory, and the state of its last clean stop.

`meta.json` names the cluster, the node, where the metadata is kept, and the directory itself, so
that a wiped directory is recognized as another one. It is written once, by `claim`.
`clean-shutdown` is the last file written by a clean stop; it holds the state needed to open every
log without scanning it, and is removed before anything changes again. A directory without it was
left by a crash. `life` counts the processes that have served this directory; see `process_lives`.
"""

import msgspec
from msgspec.structs import replace

from penstock.base.ports import Disk
from penstock.cluster.configs.effective_configs import InvalidConfig
from penstock.log.files import TEMPORARY, read_checked, remove, write_durably
from penstock.log.log import CleanState

META = "meta.json"
CLEAN = "clean-shutdown"
LIFE = "life"
FORMAT = 1
NOT_OURS = ("lock", "lost+found", META + TEMPORARY)
"""Entries that a new directory may contain: the lock, a file system's own top-level folder, and the
temporary file of a first start that crashed."""


class Meta(msgspec.Struct, frozen=True):
    """Owner of a data directory."""

    format: int
    cluster_id: str
    node_id: int
    directory_id: str = ""
    """Distinguishes this directory from another one with the same node id."""
    is_shared: bool = False
    """True if the metadata is in a store that other nodes share; False: in this directory."""


def claim(disk: Disk, data_dir: str, owner: Meta) -> Meta:
    """Returns the owner of the directory, or makes `owner` its owner; refuses another node's."""
    meta = read(disk, data_dir, owner.node_id, is_shared=owner.is_shared)
    if meta is not None and meta.directory_id:
        return meta
    meta = owner if meta is None else replace(meta, directory_id=owner.directory_id)
    write_durably(disk, f"{data_dir}/{META}", msgspec.json.encode(meta))
    return meta


def read(disk: Disk, data_dir: str, node_id: int, *, is_shared: bool) -> Meta | None:
    """Returns the directory's owner, None if it has none; refuses another node's.

    Writes nothing.
    """
    path = f"{data_dir}/{META}"
    body = read_checked(disk, path)
    if body is None:
        if disk.exists(path):
            raise _damaged(path)
        if any(name not in NOT_OURS for name in disk.listdir(data_dir)):
            raise InvalidConfig(
                f"{data_dir} holds files but no {META}: it is not a Penstock data directory; "
                "choose another --data directory"
            )
        return None
    try:
        meta = msgspec.json.decode(body, type=Meta)
    except msgspec.MsgspecError as error:
        raise _damaged(path) from error
    if meta.format != FORMAT:
        raise InvalidConfig(
            f"{data_dir} was written in format {meta.format}, this version reads {FORMAT}"
        )
    if meta.node_id != node_id:
        raise InvalidConfig(
            f"{data_dir} belongs to node {meta.node_id}, this is node {node_id}; "
            f"start with --node-id {meta.node_id} or choose another --data directory"
        )
    if meta.is_shared and not is_shared:
        raise InvalidConfig(
            f"{data_dir} belongs to a node whose metadata is in etcd; start it with "
            "`penstock node` and its etcd section, or choose another --data directory"
        )
    if is_shared and not meta.is_shared:
        raise InvalidConfig(
            f"{data_dir} keeps its metadata in itself and cannot join a cluster on etcd; start it "
            "with `penstock up`, or choose another --data directory"
        )
    return meta


def _damaged(path: str) -> InvalidConfig:
    return InvalidConfig(f"{path} is damaged; restore it or choose another --data directory")


def take_clean_states(disk: Disk, data_dir: str, life: int = 0) -> dict[str, CleanState] | None:
    """Returns and removes the state of the last clean stop, so that it is never used twice.

    None also if another life than `life`, the last of this directory, wrote it: then only a part of
    the directory was restored from a copy. Older versions wrote no number.
    """
    path = f"{data_dir}/{CLEAN}"
    body = read_checked(disk, path)
    if body is None:
        return None
    remove(disk, path)
    disk.sync_dir(data_dir)
    try:
        states = msgspec.json.decode(body, type=dict[str, CleanState])
    except msgspec.MsgspecError:
        return None
    stopped = states.pop(LIFE, None)
    return states if stopped is None or stopped.end_offset == life else None


def leave_clean_states(
    disk: Disk, data_dir: str, states: dict[str, CleanState], life: int = 0
) -> None:
    # Stored like one more log, so that older versions can read it; log names contain a slash.
    everything = {**states, LIFE: CleanState(life, life, (), 0)}
    write_durably(disk, f"{data_dir}/{CLEAN}", msgspec.json.encode(everything))


def read_life(disk: Disk, data_dir: str) -> int:
    """Returns the number of the last life that served this directory; 0: unknown."""
    body = read_checked(disk, f"{data_dir}/{LIFE}")
    try:
        return msgspec.json.decode(body, type=int) if body is not None else 0
    except msgspec.MsgspecError:
        return 0


def write_life(disk: Disk, data_dir: str, number: int) -> None:
    write_durably(disk, f"{data_dir}/{LIFE}", msgspec.json.encode(number))
