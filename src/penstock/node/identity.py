"""Who this data directory belongs to, and whether its last user left in good order.

`meta.json` names the cluster and the node, and is written once. `clean-shutdown` is written as the
last thing of a clean stop and holds what is needed to open every log without looking into it; it
is removed before anything is changed again. A directory without it was left by a crash.
"""

import msgspec

from penstock.base.ports import Disk
from penstock.cluster.configs import InvalidConfig
from penstock.log.log import CleanState
from penstock.log.store import TEMPORARY, read_sealed, remove, write_durably

META = "meta.json"
CLEAN = "clean-shutdown"
FORMAT = 1
NOT_OURS = ("lock", "lost+found", META + TEMPORARY)
"""What a directory may hold and still be new: our lock, what a file system puts at its own top,
and the rest of a first start that a crash cut short."""


class Meta(msgspec.Struct, frozen=True):
    """The owner of a data directory."""

    format: int
    cluster_id: str
    node_id: int


def claim(disk: Disk, data_dir: str, node_id: int, new_cluster_id: str) -> Meta:
    """Reads who owns the directory, or takes it; refuses another node's."""
    path = f"{data_dir}/{META}"
    body = read_sealed(disk, path)
    if body is None:
        if disk.exists(path):
            raise _damaged(path)
        if any(name not in NOT_OURS for name in disk.listdir(data_dir)):
            raise InvalidConfig(
                f"{data_dir} holds files but no {META}: it is not a Penstock data directory; "
                "choose another --data directory"
            )
        meta = Meta(FORMAT, new_cluster_id, node_id)
        write_durably(disk, path, msgspec.json.encode(meta))
        return meta
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
    return meta


def _damaged(path: str) -> InvalidConfig:
    return InvalidConfig(f"{path} is damaged; restore it or choose another --data directory")


def take_clean_states(disk: Disk, data_dir: str) -> dict[str, CleanState] | None:
    """What the last clean stop left, removed so that it can never be believed twice."""
    path = f"{data_dir}/{CLEAN}"
    body = read_sealed(disk, path)
    if body is None:
        return None
    remove(disk, path)
    disk.sync_dir(data_dir)
    try:
        return msgspec.json.decode(body, type=dict[str, CleanState])
    except msgspec.MsgspecError:
        return None


def leave_clean_states(disk: Disk, data_dir: str, states: dict[str, CleanState]) -> None:
    write_durably(disk, f"{data_dir}/{CLEAN}", msgspec.json.encode(states))
