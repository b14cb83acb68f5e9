"""The data directory's `logs` folder: `<topic name>.<topic id>/<partition>/`.

The id distinguishes a topic from an earlier one of the same name; the name is for operators.
Everything here waits for the disk, so it runs on workers; `partitions` decides which partitions
there should be.

A directory that belongs neither to a topic nor to a recorded deletion is left unchanged and
reported: it may hold a user's data.
"""

import enum
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.base.ids import TopicId, show_topic_id
from penstock.base.ports import Disk, WallClock
from penstock.cluster.configs.effective_configs import TopicConfig
from penstock.cluster.metadata.image import Image, TopicImage
from penstock.log.encryption import key_file
from penstock.log.flusher import SYNC_ALL_FILES
from penstock.log.log import CleanState, Log
from penstock.log.recovery import NEVER_OPENED
from penstock.security.keyring import Keyring

log = logging.getLogger("penstock.partitions")

NAME_CHARACTERS_MAX = 200
NAMED_MAX = 10
"""Partitions named in one log message; the others are counted."""
MOVED = ".moved"
"""Suffix of a partition's directory that is being removed."""


def directory_of(topic: str, topic_id: TopicId) -> str:
    return f"{topic[:NAME_CHARACTERS_MAX]}.{show_topic_id(topic_id)}"


@dataclass(frozen=True, slots=True)
class Opening:
    """A replica to open."""

    topic: TopicImage
    index: int
    config: TopicConfig
    leads: bool = False
    """True if this node is to lead it."""
    known_end: int = NEVER_OPENED
    """End of the records known to be committed and on this disk (`high_watermark_checkpoint`)."""
    begins_at: int = 0
    """First offset of a new log: after a loss, offsets that consumers have read are not reused."""

    @property
    def key(self) -> tuple[str, int]:
        return self.topic.name, self.index

    @property
    def directory(self) -> str:
        return directory_of(self.topic.name, self.topic.id)

    @property
    def name(self) -> str:
        """Path of the partition's own directory, below the root."""
        return f"{self.directory}/{self.index}"


class LogDirectories:
    """The `logs` folder. Every method blocks."""

    def __init__(
        self, disk: Disk, clock: WallClock, root: str, keyring: Keyring | None = None
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._root = root
        self._keyring = keyring

    def make_root(self) -> None:
        """Creates the folder. Without the sync a power cut could remove all of it."""
        self._disk.mkdir(self._root)
        self._disk.sync_dir(self._root.rpartition("/")[0])

    def open_all(
        self, share: Sequence[Opening], clean: Mapping[str, CleanState]
    ) -> list[Log | OSError]:
        """Opens a log for each replica, or returns the disk's error instead."""
        opened: list[Log | OSError] = []
        parents: dict[str, None] = {}
        for opening in share:
            try:
                found = self._open(opening, clean.get(opening.name))
            except OSError as error:
                opened.append(error)
            else:
                opened.append(found)
                if not found.is_lost:
                    parents[f"{self._root}/{opening.directory}"] = None
        try:
            self._make_durable(opened, parents)
        except OSError as error:
            return [error] * len(share)
        return opened

    def _make_durable(self, opened: Sequence[Log | OSError], parents: Iterable[str]) -> None:
        """Syncs new logs and all names: a log that is missing later was removed from outside."""
        new = [one for one in opened if isinstance(one, Log) and one.dir_dirty]
        if len(new) > SYNC_ALL_FILES:
            self._disk.sync_all(self._root)
        else:
            for one in new:
                self._disk.sync_dir(one.path)
            for parent in parents:
                self._disk.sync_dir(parent)
            self._disk.sync_dir(self._root)
        for one in new:
            one.dir_dirty = False

    def _open(self, opening: Opening, clean: CleanState | None) -> Log:
        path = f"{self._root}/{opening.name}"
        now_ms = self._clock.now_ms()
        known_end = opening.known_end
        if clean is not None:
            known_end = max(known_end, clean.end_offset)  # All records were on disk.
        opened = Log.open(
            self._disk,
            path,
            opening.config.log,
            now_ms,
            clean,
            self._keyring,
            known_end,
        )
        if opened.dir_dirty and opening.begins_at:
            opened.start_over(opening.begins_at)
        state = opening.topic.partitions[opening.index]
        if opened.offline is None and opening.leads and state.leader_epoch > opened.epochs.latest:
            # The first append would do this, too, but on the event loop.
            opened.begin_epoch(state.leader_epoch)
        return opened

    def remove(self, topic_id: TopicId) -> None:
        """Removes a topic's directory. It is renamed first, so that a crash never leaves half a
        topic. Then its keys are destroyed, so that remains of an encrypted log are unreadable."""
        disk, suffix = self._disk, f".{show_topic_id(topic_id)}"
        retired = f"{self._root}/{suffix}.deleted"
        for name in disk.listdir(self._root):
            if name.endswith(suffix):
                disk.rename(f"{self._root}/{name}", retired)
                disk.sync_dir(self._root)
        for index in disk.listdir(retired):
            key_file.shred(disk, f"{retired}/{index}")
        for index in disk.listdir(retired):
            for file in disk.listdir(f"{retired}/{index}"):
                disk.unlink(f"{retired}/{index}/{file}")
            disk.rmdir(f"{retired}/{index}")
        if disk.exists(retired):
            disk.rmdir(retired)
            disk.sync_dir(self._root)

    def remove_partition(self, topic: TopicImage, index: int) -> None:
        """Removes one partition of a topic that exists elsewhere. Renamed first, as a topic is."""
        disk, parent = self._disk, f"{self._root}/{directory_of(topic.name, topic.id)}"
        retired = f"{parent}/.{index}{MOVED}"
        self._empty(retired)
        if disk.exists(f"{parent}/{index}"):
            disk.rename(f"{parent}/{index}", retired)
            disk.sync_dir(parent)
        self._empty(retired)

    def find_moved(self, image: Image, node_id: int) -> list[tuple[TopicId, int]]:
        """Partitions with a directory here that have no replica on this node by the image."""
        moved = []
        for topic in image.topics.values():
            parent = f"{self._root}/{directory_of(topic.name, topic.id)}"
            for name in self._disk.listdir(parent):
                if name.endswith(MOVED):  # Left by a crash between renaming and removing.
                    self._empty(f"{parent}/{name}")
                elif name.isdecimal():
                    record = image.partition(topic.name, int(name))
                    if record is not None and node_id not in record.replicas:
                        moved.append((topic.id, int(name)))
        return moved

    def _empty(self, retired: str) -> None:
        if self._disk.exists(retired):
            key_file.shred(self._disk, retired)
            for file in self._disk.listdir(retired):
                self._disk.unlink(f"{retired}/{file}")
            self._disk.rmdir(retired)

    def report_strays(self, image: Image) -> None:
        known = {directory_of(topic.name, topic.id) for topic in image.topics.values()}
        for name in self._disk.listdir(self._root):
            if name not in known and not name.startswith("."):
                log.warning(
                    "%s/%s belongs to no topic and is left unchanged. If the metadata was restored "
                    "from a backup, see docs/how-to/restore-metadata.md",
                    self._root,
                    name,
                )


class Advice(enum.Enum):
    """Advice to the operator on offline logs: for one, and for several."""

    WAIT = (
        "It is copied anew from another replica once one leads.",
        "They are copied anew from other replicas once one leads.",
    )
    RESTORE = (
        "Stop the node and restore the directory from a copy, or delete the topic.",
        "Stop the node and restore the directories from a copy, or delete the topics.",
    )
    ACCEPT = (
        "Stop the node and restore the directory from a copy; or delete the topic; or continue "
        "without the lost records: penstock cluster accept-loss {name} {index} --data {data_dir}",
        "Stop the node and restore the directories from a copy; or delete the topics; or continue "
        "without the lost records: penstock cluster accept-loss --all --data {data_dir} for those "
        "whose files are missing, and with topic and partition for each that is damaged",
    )


def report_offline(offline: Iterable[tuple[Opening, Log]], data_dir: str) -> None:
    """Logs which replicas are offline and what the operator can do: one message per kind of advice,
    for any number of replicas."""
    by_advice: dict[Advice, list[tuple[Opening, Log]]] = {}
    for opening, opened in offline:
        by_advice.setdefault(_advice(opening, opened), []).append((opening, opened))
    for advice, found in by_advice.items():
        opening, opened = found[0]
        name, index = opening.key
        one, several = (
            text.format(name=name, index=index, data_dir=data_dir) for text in advice.value
        )
        if len(found) == 1:
            log.error(
                "%s-%d is offline: %s. Its files are kept unchanged; other partitions "
                "remain available. %s",
                name,
                index,
                opened.offline,
                one,
            )
            continue
        names = listed([f"{each.topic.name}-{each.index}" for each, _ in found])
        log.error(
            "%d replicas are offline: %s. The reason of the first: %s. Their files are kept "
            "unchanged; other partitions remain available. %s",
            len(found),
            names,
            opened.offline,
            several,
        )


def _advice(opening: Opening, opened: Log) -> Advice:
    if len(opening.topic.partitions[opening.index].replicas) > 1:
        return Advice.WAIT
    return Advice.ACCEPT if opened.is_lost else Advice.RESTORE


def listed(names: Sequence[str], named_max: int = NAMED_MAX) -> str:
    """Joins the first of these names, and adds the number of the others."""
    shown, more = ", ".join(names[:named_max]), len(names) - named_max
    return f"{shown} and {more:,} more" if more > 0 else shown
