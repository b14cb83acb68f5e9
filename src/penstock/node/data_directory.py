"""Who this data directory belongs to, and whether its last user left in good order.

`meta.json` names the cluster, the node, where the metadata is kept, and the directory itself, so
that one which was wiped is known to be another. It is written once, by `claim`. `clean-shutdown`
is written as the last thing of a clean stop and holds what is needed to open every log without
looking into it; it is removed before anything is changed again. A directory without it was left by
a crash. `life` counts the processes that have served this directory; see `lives`.
"""

import msgspec
from msgspec.structs import replace

from penstock.base.ports import Disk
from penstock.cluster.configs.configs import InvalidConfig
from penstock.log.files import TEMPORARY, read_checked, remove, write_durably
from penstock.log.log import CleanState

META = "meta.json"
CLEAN = "clean-shutdown"
LIFE = "life"
FORMAT = 1
NOT_OURS = ("lock", "lost+found", META + TEMPORARY)
"""What a directory may hold and still be new: our lock, what a file system puts at its own top,
and the rest of a first start that a crash cut short."""


class Meta(msgspec.Struct, frozen=True):
    """The owner of a data directory."""

    format: int
    cluster_id: str
    node_id: int
    directory_id: str = ""
    """Tells the same directory in another life from another directory under the same node id."""
    is_shared: bool = False
    """Whether the metadata is in a store that other nodes use, too, or in this directory."""


def claim(disk: Disk, data_dir: str, owner: Meta) -> Meta:
    """Reads who owns the directory, or gives it to `owner`; refuses another's."""
    meta = read(disk, data_dir, owner.node_id, is_shared=owner.is_shared)
    if meta is not None and meta.directory_id:
        return meta
    meta = owner if meta is None else replace(meta, directory_id=owner.directory_id)
    write_durably(disk, f"{data_dir}/{META}", msgspec.json.encode(meta))
    return meta


def read(disk: Disk, data_dir: str, node_id: int, *, is_shared: bool) -> Meta | None:
    """Who owns the directory, None if nobody does; refuses another's. Changes nothing."""
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
    """State that the last clean stop left, removed so that it can never be believed twice.

    None also for one that another life left than the last of this directory, `life`: then only a
    part of the directory was put back from a copy. Older versions left no number.
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
    # As one more log, so that older versions can read it; no log's name is without a slash.
    everything = {**states, LIFE: CleanState(life, life, (), 0)}
    write_durably(disk, f"{data_dir}/{CLEAN}", msgspec.json.encode(everything))


def read_life(disk: Disk, data_dir: str) -> int:
    """The number of the last life that served this directory; 0: none is known."""
    body = read_checked(disk, f"{data_dir}/{LIFE}")
    try:
        return msgspec.json.decode(body, type=int) if body is not None else 0
    except msgspec.MsgspecError:
        return 0


def write_life(disk: Disk, data_dir: str, number: int) -> None:
    write_durably(disk, f"{data_dir}/{LIFE}", msgspec.json.encode(number))
